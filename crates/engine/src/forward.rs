//! Macros for methods that forward to another value: for backends that wrap a backend, and for test doubles.

pub use hypergrove_fips205::plan::{Plan, Rates};

/// Implements the named methods by calling those of another device, backend, program or hasher: `forward!(self => self.subject; name, devices);`.
/// Each method must be named, since none has a default.
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

    (@ slh_dsa $self:ident $to:expr) => {
        fn slh_dsa(&$self) -> Option<&dyn $crate::SlhDsaPrograms> { $to.slh_dsa() }
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
    // For a program on the host's threads, which never hang.
    (@ no_time_limit $self:ident $to:expr) => {
        fn time_limit(&mut $self, _: Option<std::time::Duration>) {}
    };
    // For a backend of the host: its drivers cannot be absent, and nobody knows its rates without measuring for a while.
    (@ is_host $self:ident $to:expr) => {
        fn absent(&$self) -> Option<String> { None }
        fn notices(&$self) -> Vec<String> { Vec::new() }
        fn rates(&$self, _: &$crate::Device) -> Option<$crate::forward::Rates> { None }
        fn clock(&$self, _: &$crate::Device) -> Option<f64> { None }
        fn free(&$self, _: &$crate::Device) -> Option<u64> { None }
    };
    // For programs that run on the host's threads and are compiled already.
    (@ on_threads $self:ident $to:expr) => {
        fn jobs(&$self, _: &$crate::Device, _: &$crate::forward::Plan, policy: &$crate::Policy) -> usize {
            $crate::slh_dsa::jobs_on_threads(policy)
        }
        fn compile(&$self, _: &$crate::Device, _: &$crate::forward::Plan, _: usize, _: &$crate::Policy) {}
        fn queue(&$self, device: &$crate::Device, _: &$crate::forward::Plan) -> u32 { device.queue }
        fn abilities(&$self, _: &$crate::Device, _: &$crate::forward::Plan) -> $crate::Abilities {
            $crate::Abilities::NONE
        }
    };
    // For a hasher whose memory is the host's: nothing is resident elsewhere, and there is no link.
    (@ hashes_on_host $self:ident $to:expr) => {
        fn resident(
            &mut $self,
            _: $crate::Messages<'_>,
            _: usize,
            _: usize,
            _: &mut [[u8; 32]],
        ) -> Result<Option<Vec<std::time::Duration>>, $crate::Error> {
            Ok(None)
        }
        fn link(&mut $self) -> Result<Option<f64>, $crate::Error> { Ok(None) }
        $crate::forward!(@ no_time_limit $self $to);
    };

    (@ resident $self:ident $to:expr) => {
        fn resident(
            &mut $self,
            messages: $crate::Messages<'_>,
            copies: usize,
            runs: usize,
            digests: &mut [[u8; 32]],
        ) -> Result<Option<Vec<std::time::Duration>>, $crate::Error> {
            $to.resident(messages, copies, runs, digests)
        }
    };
    (@ link $self:ident $to:expr) => {
        fn link(&mut $self) -> Result<Option<f64>, $crate::Error> { $to.link() }
    };
}

/// Gives a backend the named capabilities of [`Backend`](crate::Backend); it lacks the others: `capabilities!(has slh_dsa, sha256;);`. `programs`
/// stands for those of all schemes. `capabilities!(around subject;);` is for a backend around the backend in its field `subject`: it has programs for
/// the same schemes, and passes host memory along.
#[doc(hidden)]
#[macro_export]
macro_rules! capabilities {
    ($(has $($has:ident),+;)?) => {
        fn slh_dsa(&self) -> Option<&dyn $crate::SlhDsaPrograms> {
            $crate::capabilities!(@ slh_dsa self [$($($has)+)?])
        }
        fn sha256(&self) -> Option<&dyn $crate::Sha256Programs> {
            $crate::capabilities!(@ sha256 self [$($($has)+)?])
        }
        fn zkdilithium(&self) -> Option<&dyn $crate::ZkDilithiumPrograms> {
            $crate::capabilities!(@ zkdilithium self [$($($has)+)?])
        }
        fn host_memory(&self) -> Option<&dyn $crate::HostMemory> {
            $crate::capabilities!(@ host_memory self [$($($has)+)?])
        }
    };
    (around $subject:ident;) => {
        fn slh_dsa(&self) -> Option<&dyn $crate::SlhDsaPrograms> {
            self.$subject.slh_dsa().map(|_| self as _)
        }
        fn sha256(&self) -> Option<&dyn $crate::Sha256Programs> {
            self.$subject.sha256().map(|_| self as _)
        }
        fn zkdilithium(&self) -> Option<&dyn $crate::ZkDilithiumPrograms> {
            self.$subject.zkdilithium().map(|_| self as _)
        }
        $crate::forward!(self => self.$subject; host_memory);
    };
    (@ host_memory $self:ident [programs $($rest:ident)*]) => { $crate::capabilities!(@ host_memory $self [$($rest)*]) };
    (@ $wanted:ident $self:ident [programs $($rest:ident)*]) => { Some($self) };
    (@ slh_dsa $self:ident [slh_dsa $($rest:ident)*]) => { Some($self) };
    (@ sha256 $self:ident [sha256 $($rest:ident)*]) => { Some($self) };
    (@ zkdilithium $self:ident [zkdilithium $($rest:ident)*]) => { Some($self) };
    (@ host_memory $self:ident [host_memory $($rest:ident)*]) => { Some($self) };
    (@ $wanted:ident $self:ident [$other:ident $($rest:ident)*]) => { $crate::capabilities!(@ $wanted $self [$($rest)*]) };
    (@ $wanted:ident $self:ident []) => { None };
}
