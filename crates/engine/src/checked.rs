//! A backend that compares two backends: every result, and every value on the way to it that both keep.

use crate::{
    Abilities, Axis, Backend, Device, Error, Hasher, Messages, Places, Policy, Program, Sha256Programs, SlhDsaPrograms,
    Timing, Work, capabilities, forward,
};
use hypergrove_fips205::plan::{Plan, Slot};
use std::sync::Arc;
use std::time::Duration;
use zeroize::Zeroize;

/// A backend that runs every batch twice, on `subject` and on `reference`, and withholds results that differ.
pub struct Checked {
    /// The backend whose devices, policies and results these are.
    pub subject: Arc<dyn Backend>,
    /// The backend that computes the results to compare with, on its first device by its default policy.
    pub reference: Arc<dyn Backend>,
}

/// The values that can be compared, in the order of computation: the first difference is the nearest to the fault.
const SLOTS: [Slot; 3] = [Slot::ForsRoots, Slot::ForsPk, Slot::XmssRoots];

/// A program of the subject, and a program of the reference that computes the same jobs.
pub(crate) struct Pair<P: ?Sized> {
    device: String,
    pub(crate) subject: Box<P>,
    pub(crate) reference: Box<P>,
}

impl<P: ?Sized> Pair<P> {
    /// The error for results that differ.
    pub(crate) fn inconsistent(&self, what: String) -> Error {
        Error::Inconsistent { device: self.device.clone(), what }
    }
}

impl Checked {
    fn reference_device(&self) -> Result<Device, Error> {
        self.reference.devices()?.into_iter().next().ok_or_else(|| Error::Device {
            device: self.reference.name().into(),
            what: "there is no device to check with".into(),
        })
    }

    /// Prepares a program of each backend.
    pub(crate) fn pair<P: ?Sized>(
        &self,
        device: &Device,
        policy: &Policy,
        prepare: impl Fn(&dyn Backend, &Device, &Policy) -> Result<Box<P>, Error>,
    ) -> Result<Box<Pair<P>>, Error> {
        let other = self.reference_device()?;
        let subject = prepare(&*self.subject, device, policy)?;
        let reference = prepare(&*self.reference, &other, &Policy::default())?;
        Ok(Box::new(Pair { device: device.name.clone(), subject, reference }))
    }
}

impl Backend for Checked {
    forward!(self => self.subject; name, devices, self_test, absent, rates, clock, fingerprint, free);

    fn notices(&self) -> Vec<String> {
        [self.subject.notices(), self.reference.notices()].concat()
    }
    capabilities!(around subject;);
}

/// Used only if the subject has the capability: otherwise [`Backend::slh_dsa`] gives `None`.
impl SlhDsaPrograms for Checked {
    forward!(self => self.subject.slh_dsa().expect("the subject has SLH-DSA"); space, jobs, compile, queue);

    fn bytes(&self, device: &Device, plan: &Plan, batch: usize, policy: &Policy) -> u64 {
        let subject = self.subject.slh_dsa().map_or(0, |subject| subject.bytes(device, plan, batch, policy));
        let reference = self.reference.slh_dsa().zip(self.reference_device().ok());
        let reference = reference.map_or(0, |(its, device)| its.bytes(&device, plan, batch, &Policy::default()));
        subject + reference + (batch * plan.out_bytes()) as u64
    }
    /// Outputs are compared where both programs have written them.
    fn abilities(&self, _: &Device, _: &Plan) -> Abilities {
        Abilities::NONE
    }
    fn prepare(&self, device: &Device, plan: &Plan, batch: usize, policy: &Policy) -> Result<Box<dyn Program>, Error> {
        let prepare =
            |of: &dyn Backend, device: &_, policy: &_| of.slh_dsa_on(device)?.prepare(device, plan, batch, policy);
        Ok(self.pair(device, policy, prepare)?)
    }
}

impl Sha256Programs for Checked {
    fn longest(&self, device: &Device, policy: &Policy) -> Result<usize, Error> {
        let of_reference = self.reference.sha256_on(&self.reference_device()?)?;
        let longest = of_reference.longest(&self.reference_device()?, &Policy::default())?;
        Ok(self.subject.sha256_on(device)?.longest(device, policy)?.min(longest))
    }
    fn prepare(&self, device: &Device, policy: &Policy) -> Result<Box<dyn Hasher>, Error> {
        Ok(self.pair(device, policy, |of, device, policy| of.sha256_on(device)?.prepare(device, policy))?)
    }
}

impl Pair<dyn Hasher> {
    /// Compares digests with the reference's.
    fn check(&mut self, messages: Messages<'_>, digests: &[[u8; 32]]) -> Result<(), Error> {
        let mut expected = vec![[0; 32]; digests.len()];
        self.reference.run(messages, &mut expected)?;
        match digests.iter().zip(&expected).position(|(a, b)| a != b) {
            None => Ok(()),
            Some(at) => Err(self.inconsistent(format!("SHA-256 of message {at} differs"))),
        }
    }
}

impl Hasher for Pair<dyn Hasher> {
    fn space(&self) -> Vec<Axis> {
        self.subject.space()
    }
    fn run(&mut self, messages: Messages<'_>, digests: &mut [[u8; 32]]) -> Result<Timing, Error> {
        let timing = self.subject.run(messages, digests)?;
        self.check(messages, digests).map(|()| timing)
    }
    fn resident(
        &mut self,
        messages: Messages<'_>,
        copies: usize,
        runs: usize,
        digests: &mut [[u8; 32]],
    ) -> Result<Option<Vec<Duration>>, Error> {
        match self.subject.resident(messages, copies, runs, digests)? {
            Some(times) => self.check(messages, digests).map(|()| Some(times)),
            None => Ok(None),
        }
    }
    forward!(self => self.subject; link, time_limit);
}

impl Pair<dyn Program> {
    /// Compares two values of one layout. The error names the first job whose bytes differ.
    fn compare(&self, what: &str, jobs: usize, subject: &[u8], reference: &[u8]) -> Result<(), Error> {
        if subject.len() != reference.len() {
            let what = format!("{what}: {} bytes, the reference has {}", subject.len(), reference.len());
            return Err(self.inconsistent(what));
        }
        let each = subject.len() / jobs.max(1);
        match subject.iter().zip(reference).position(|(a, b)| a != b) {
            Some(at) => Err(self.inconsistent(format!("{what} of job {} differs at byte {}", at / each, at % each))),
            None => Ok(()),
        }
    }
}

impl Program for Pair<dyn Program> {
    fn plan(&self) -> &Plan {
        self.subject.plan()
    }
    forward!(self => self.subject; prove, time_limit);

    fn run(&mut self, mut work: Work<'_>, out: &mut [&mut [u8]]) -> Result<Timing, Error> {
        let [out] = out else {
            return Err(Error::Value { what: "results that are compared need one part of memory".into() });
        };
        let positions = work.positions()?;
        let mut work = Work { digests: None, ..work.lend() };
        work.batch.positions = &positions;
        let (mut expected, places, jobs) = (out.to_vec(), work.places, work.batch.len());
        let outcome = self.subject.run(work.lend(), &mut [out]).and_then(|timing| {
            work.accept = None;
            self.reference.run(work.lend(), &mut [&mut expected])?;
            // Slots mean nothing after a run that put jobs in other places.
            for slot in SLOTS.into_iter().filter(|_| places == Places::Usual) {
                if let (Some(a), Some(b)) = (self.subject.read(slot)?, self.reference.read(slot)?) {
                    self.compare(&format!("{slot:?}"), jobs, &a, &b)?;
                }
            }
            self.compare(&format!("the output of {:?}", self.plan().op), jobs, out, &expected)?;
            Ok(timing)
        });
        // Two signatures that differ are two uses of a one-time key, enough to forge: neither may leave.
        if outcome.is_err() {
            out.zeroize();
            expected.zeroize();
        }
        outcome
    }
    fn read(&mut self, slot: Slot) -> Result<Option<Vec<u8>>, Error> {
        self.subject.read(slot)
    }
}
