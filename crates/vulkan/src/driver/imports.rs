//! How buffers are used, and whether a device imports pages of the host for such buffers.

use ash::vk;

/// Every buffer is copied from and to.
pub(super) const COPIED: vk::BufferUsageFlags = vk::BufferUsageFlags::from_raw(
    vk::BufferUsageFlags::TRANSFER_SRC.as_raw() | vk::BufferUsageFlags::TRANSFER_DST.as_raw(),
);

/// How pages of the host come into the device's hands.
pub(super) const BY: vk::ExternalMemoryHandleTypeFlags = vk::ExternalMemoryHandleTypeFlags::HOST_ALLOCATION_EXT;

/// Whether a device that has the extension imports memory for such buffers.
pub(super) fn imports(vulkan: &ash::Instance, physical: vk::PhysicalDevice) -> bool {
    let info = vk::PhysicalDeviceExternalBufferInfo::default().usage(COPIED).handle_type(BY);
    let mut buffers = vk::ExternalBufferProperties::default();
    // SAFETY: the device is the instance's, and has the extension that knows this type.
    unsafe { vulkan.get_physical_device_external_buffer_properties(physical, &info, &mut buffers) };
    let can = buffers.external_memory_properties;
    can.external_memory_features.contains(vk::ExternalMemoryFeatureFlags::IMPORTABLE)
        && can.compatible_handle_types.contains(BY)
}
