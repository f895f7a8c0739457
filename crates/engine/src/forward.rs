//! A macro for methods that forward to another value: for backends that wrap a backend, and for test doubles.

pub use hypergrove_fips205::plan::{Plan, Rates};

/// Implements the named methods by calling those of another device, backend, program or hasher: `forward!(self => self.subject; name, devices);`.
/// Each method must be named: one with a default would otherwise do what the default does.
#[doc(hidden)]
#[macro_export]
macro_rules! forward {
    ($self:ident => $to:expr; $($method:ident),+ $(,)?) => { $($crate::forward!(@ $method $self $to);)+ };

    (@ name $self:ident $to:expr) => {
        fn name(&$self) -> &'static str { $to.name() }
    };
    (@ devices $self:ident $to:expr) => {
        fn devices(&$self) -> Result<Vec<$crate::Device>, $crate::Error> { $to.devices() }
    };
    (@ self_test $self:ident $to:expr) => {
        fn self_test(&$self) -> $crate::SelfTest { $to.self_test() }
    };
    (@ absent $self:ident $to:expr) => {
        fn absent(&$self) -> Option<String> { $to.absent() }
    };
    (@ notices $self:ident $to:expr) => {
        fn notices(&$self) -> Vec<String> { $to.notices() }
    };
    (@ rates $self:ident $to:expr) => {
        fn rates(&$self, device: &$crate::Device) -> Option<$crate::forward::Rates> { $to.rates(device) }
    };
    (@ clock $self:ident $to:expr) => {
        fn clock(&$self, device: &$crate::Device) -> Option<f64> { $to.clock(device) }
    };
    (@ fingerprint $self:ident $to:expr) => {
        fn fingerprint(&$self, device: &$crate::Device) -> String { $to.fingerprint(device) }
    };
    (@ free $self:ident $to:expr) => {
        fn free(&$self, device: &$crate::Device) -> Option<u64> { $to.free(device) }
    };

    (@ sha256 $self:ident $to:expr) => {
        fn sha256(&$self) -> Option<&dyn $crate::Sha256Programs> { $to.sha256() }
    };
    (@ zkdilithium $self:ident $to:expr) => {
        fn zkdilithium(&$self) -> Option<&dyn $crate::ZkDilithiumPrograms> { $to.zkdilithium() }
    };

    (@ host_memory $self:ident $to:expr) => {
        fn host_memory(&$self) -> Option<&dyn $crate::HostMemory> { $to.host_memory() }
    };

    (@ space $self:ident $to:expr) => {
        fn space(
            &$self,
            device: &$crate::Device,
            plan: &$crate::forward::Plan,
        ) -> Result<Vec<$crate::Axis>, $crate::Error> {
            $to.space(device, plan)
        }
    };
    (@ jobs $self:ident $to:expr) => {
        fn jobs(&$self, device: &$crate::Device, plan: &$crate::forward::Plan, policy: &$crate::Policy) -> usize {
            $to.jobs(device, plan, policy)
        }
    };
    (@ compile $self:ident $to:expr) => {
        fn compile(
            &$self,
            device: &$crate::Device,
            plan: &$crate::forward::Plan,
            batch: usize,
            policy: &$crate::Policy,
        ) {
            $to.compile(device, plan, batch, policy)
        }
    };
    (@ queue $self:ident $to:expr) => {
        fn queue(&$self, device: &$crate::Device, plan: &$crate::forward::Plan) -> u32 { $to.queue(device, plan) }
    };
    (@ bytes $self:ident $to:expr) => {
        fn bytes(
            &$self,
            device: &$crate::Device,
            plan: &$crate::forward::Plan,
            batch: usize,
            policy: &$crate::Policy,
        ) -> u64 {
            $to.bytes(device, plan, batch, policy)
        }
    };

    (@ abilities $self:ident $to:expr) => {
        fn abilities(&$self, device: &$crate::Device, plan: &$crate::forward::Plan) -> $crate::Abilities {
            $to.abilities(device, plan)
        }
    };
    (@ hashes $self:ident $to:expr) => {
        fn hashes(&$self) -> usize { $to.hashes() }
    };
    (@ prove $self:ident $to:expr) => {
        fn prove(&mut $self, jobs: usize) -> Result<(), $crate::Error> { $to.prove(jobs) }
    };
    (@ time_limit $self:ident $to:expr) => {
        fn time_limit(&mut $self, limit: Option<std::time::Duration>) { $to.time_limit(limit) }
    };
}
