// A GPU whose kernels run on the host: tests of a program that needs it include this at its root, since `host` names what it implements
// by `crate::gpu`, as in its own crate.

#[path = "../../../gpu/src/host.rs"]
#[allow(unsafe_code, dead_code)]
mod host;
mod gpu {
    pub(crate) use hypergrove_gpu::{Facts, Gpu, Queue, SLOTS, Step, WaitLimit};
}
mod mapped {
    pub(crate) use hypergrove_gpu::MappedBytes;
}
mod steps {
    pub(crate) use hypergrove_gpu::steps::{Access, Allocations, Place, accesses};
}
