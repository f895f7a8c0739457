//! Vulkan's loader, which is loaded at its first use. An error says if it is missing.

use ash::{Entry, ext, khr, vk};
use hypergrove_engine::scheduler::lock;
use std::ffi::{CStr, c_void};
use std::sync::{Arc, Mutex};

/// The oldest Vulkan version that the loader may have.
const OLDEST: u32 = vk::API_VERSION_1_1;
const LAYER: &CStr = c"VK_LAYER_KHRONOS_validation";

/// A connection to all drivers.
pub(crate) struct Instance {
    pub(super) instance: ash::Instance,
    /// Khronos' layer, if calls are checked, and its remarks. They are boxed, since the layer knows their address.
    validation: Option<(ext::debug_utils::Instance, vk::DebugUtilsMessengerEXT, Box<Remarks>)>,
    /// The library, which is dropped last.
    _entry: Entry,
}

type Remarks = Mutex<Vec<String>>;

impl Instance {
    /// Connects to all drivers. The error says why there is no connection, in a sentence without its full stop.
    pub(crate) fn open(validated: bool) -> Result<Arc<Instance>, String> {
        // SAFETY: loading the library runs its initialisers, which is what they are for.
        let entry = unsafe { Entry::load() }.map_err(|_| "there is no Vulkan loader: libvulkan is not installed")?;
        // SAFETY: it asks for a number.
        let version = unsafe { entry.try_enumerate_instance_version() }.ok().flatten().unwrap_or(vk::API_VERSION_1_0);
        if version < OLDEST {
            return Err("the Vulkan loader is too old, it knows Vulkan 1.0 alone".to_owned());
        }
        let failed = |code: vk::Result| match code {
            vk::Result::ERROR_INCOMPATIBLE_DRIVER => "the Vulkan loader finds no driver here".to_owned(),
            vk::Result::ERROR_LAYER_NOT_PRESENT => "Khronos' validation layer is not installed".to_owned(),
            code => format!("Vulkan does not start: {code}"),
        };
        // SAFETY: it asks for a list.
        let known = unsafe { entry.enumerate_instance_extension_properties(None) }.map_err(failed)?;
        let knows = |name: &CStr| known.iter().any(|one| one.extension_name_as_c_str() == Ok(name));
        let mut extensions = Vec::new();
        let mut flags = vk::InstanceCreateFlags::empty();
        if knows(khr::portability_enumeration::NAME) {
            // This is for MoltenVK, among others, which lacks nothing that is used here.
            extensions.push(khr::portability_enumeration::NAME.as_ptr());
            flags |= vk::InstanceCreateFlags::ENUMERATE_PORTABILITY_KHR;
        }
        let mut layers = Vec::new();
        if validated {
            extensions.push(ext::debug_utils::NAME.as_ptr());
            layers.push(LAYER.as_ptr());
        }
        let application =
            vk::ApplicationInfo::default().application_name(c"hypergrove").api_version(vk::API_VERSION_1_3);
        let checks = [vk::ValidationFeatureEnableEXT::SYNCHRONIZATION_VALIDATION];
        let mut features = vk::ValidationFeaturesEXT::default().enabled_validation_features(&checks);
        let mut info = vk::InstanceCreateInfo::default()
            .flags(flags)
            .application_info(&application)
            .enabled_extension_names(&extensions)
            .enabled_layer_names(&layers);
        if validated {
            info = info.push_next(&mut features);
        }
        // SAFETY: all that the structure points to lives.
        let instance = unsafe { entry.create_instance(&info, None) }.map_err(failed)?;
        let mut made = Instance { instance, validation: None, _entry: entry };
        if validated {
            made.listen().map_err(failed)?;
        }
        Ok(Arc::new(made))
    }

    /// Has the layer record its remarks.
    fn listen(&mut self) -> Result<(), vk::Result> {
        let remarks = Box::new(Remarks::default());
        let functions = ext::debug_utils::Instance::new(&self._entry, &self.instance);
        let severity = vk::DebugUtilsMessageSeverityFlagsEXT::WARNING | vk::DebugUtilsMessageSeverityFlagsEXT::ERROR;
        let info = vk::DebugUtilsMessengerCreateInfoEXT::default()
            .message_severity(severity)
            .message_type(vk::DebugUtilsMessageTypeFlagsEXT::VALIDATION)
            .pfn_user_callback(Some(remark))
            .user_data((&raw const *remarks).cast_mut().cast());
        // SAFETY: the remarks live as long as the messenger: `drop` ends it before they go.
        let messenger = unsafe { functions.create_debug_utils_messenger(&info, None) }?;
        self.validation = Some((functions, messenger, remarks));
        Ok(())
    }

    /// The validation layer's remarks.
    pub(crate) fn remarks(&self) -> Vec<String> {
        self.validation.as_ref().map_or(Vec::new(), |(.., remarks)| lock(remarks).clone())
    }
}

impl Drop for Instance {
    fn drop(&mut self) {
        // SAFETY: each was made once and is destroyed once; devices, which hold this, have gone.
        unsafe {
            if let Some((functions, messenger, _)) = &self.validation {
                functions.destroy_debug_utils_messenger(*messenger, None);
            }
            self.instance.destroy_instance(None);
        }
    }
}

/// Records a message of the layer.
unsafe extern "system" fn remark(
    _: vk::DebugUtilsMessageSeverityFlagsEXT,
    _: vk::DebugUtilsMessageTypeFlagsEXT,
    data: *const vk::DebugUtilsMessengerCallbackDataEXT<'_>,
    remarks: *mut c_void,
) -> vk::Bool32 {
    // SAFETY: the pointer is that of `listen`, and the message is one that lives until this returns.
    let (remarks, message) = unsafe { (&*remarks.cast::<Remarks>(), (*data).message_as_c_str()) };
    let text = message.map_or_else(|| "a message without text".into(), CStr::to_string_lossy);
    lock(remarks).push(text.into_owned());
    vk::FALSE
}
