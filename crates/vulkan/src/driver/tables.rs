//! The hashes' tables of constants: a uniform buffer that every pipeline sees.

use ash::vk;
use gpu_allocator::MemoryLocation;
use gpu_allocator::vulkan::{Allocation, AllocationCreateDesc, AllocationScheme, Allocator};

#[derive(Default)]
pub(super) struct Tables {
    pub(super) layout: vk::DescriptorSetLayout,
    pub(super) set: vk::DescriptorSet,
    pool: vk::DescriptorPool,
    buffer: vk::Buffer,
    allocation: Option<Allocation>,
}

impl Tables {
    /// Makes the tables. The error is the driver's.
    pub(super) fn new(device: &ash::Device, allocator: &mut Allocator) -> Result<Tables, String> {
        let mut tables = Tables::default();
        match tables.make(device, allocator) {
            Ok(()) => Ok(tables),
            Err(why) => {
                tables.destroy(device, allocator);
                Err(why)
            }
        }
    }

    fn make(&mut self, device: &ash::Device, allocator: &mut Allocator) -> Result<(), String> {
        let failed = |code: vk::Result| format!("{code} while laying out tables");
        let bytes: Vec<u8> =
            hypergrove_kernels::tables().flat_map(|(_, words)| words).flat_map(u32::to_ne_bytes).collect();
        let kind = vk::DescriptorType::UNIFORM_BUFFER;
        let binding = vk::DescriptorSetLayoutBinding::default().descriptor_type(kind).descriptor_count(1);
        let bindings = [binding.stage_flags(vk::ShaderStageFlags::COMPUTE)];
        let layout = vk::DescriptorSetLayoutCreateInfo::default().bindings(&bindings);
        let size = [vk::DescriptorPoolSize { ty: kind, descriptor_count: 1 }];
        let pool = vk::DescriptorPoolCreateInfo::default().max_sets(1).pool_sizes(&size);
        let usage = vk::BufferUsageFlags::UNIFORM_BUFFER;
        let buffer = vk::BufferCreateInfo::default().size(bytes.len() as u64).usage(usage);
        // SAFETY: all that the structures point to lives; `destroy` gives back what is made.
        unsafe {
            self.layout = device.create_descriptor_set_layout(&layout, None).map_err(failed)?;
            self.pool = device.create_descriptor_pool(&pool, None).map_err(failed)?;
            self.buffer = device.create_buffer(&buffer, None).map_err(failed)?;
        }
        let description = AllocationCreateDesc {
            name: "tables",
            // SAFETY: the buffer was made just now.
            requirements: unsafe { device.get_buffer_memory_requirements(self.buffer) },
            location: MemoryLocation::CpuToGpu,
            linear: true,
            allocation_scheme: AllocationScheme::GpuAllocatorManaged,
        };
        let allocation = self.allocation.insert(allocator.allocate(&description).map_err(|why| why.to_string())?);
        // SAFETY: the allocation was made for this buffer, and is freed after it.
        unsafe { device.bind_buffer_memory(self.buffer, allocation.memory(), allocation.offset()) }.map_err(failed)?;
        let mapped = allocation.mapped_slice_mut().and_then(|mapped| mapped.get_mut(..bytes.len()));
        mapped.ok_or("tables are not mapped")?.copy_from_slice(&bytes);
        let layouts = [self.layout];
        let info = vk::DescriptorSetAllocateInfo::default().descriptor_pool(self.pool).set_layouts(&layouts);
        let whole = [vk::DescriptorBufferInfo::default().buffer(self.buffer).range(vk::WHOLE_SIZE)];
        // SAFETY: pool, layout and buffer were made above, and the set is used by nothing yet.
        unsafe {
            self.set = device.allocate_descriptor_sets(&info).map_err(failed)?[0];
            let write = vk::WriteDescriptorSet::default().dst_set(self.set).descriptor_type(kind).buffer_info(&whole);
            device.update_descriptor_sets(&[write], &[]);
        }
        Ok(())
    }

    /// Destroys the tables. This must be called once, when nothing uses them any more.
    pub(super) fn destroy(&mut self, device: &ash::Device, allocator: &mut Allocator) {
        // SAFETY: made by `make` as far as they are not null, which may be destroyed too.
        unsafe {
            device.destroy_buffer(self.buffer, None);
            device.destroy_descriptor_pool(self.pool, None);
            device.destroy_descriptor_set_layout(self.layout, None);
        }
        if let Some(allocation) = self.allocation.take() {
            // Memory that cannot be freed is freed with the device.
            let _ = allocator.free(allocation);
        }
    }
}
