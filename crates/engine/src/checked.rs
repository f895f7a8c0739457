//! Two backends, one answer: every result and every value on the way to it is compared.

use crate::{Axis, Backend, Batch, Device, Error, Hasher, Messages, Policy, Program, Timing};
use hypergrove_fips205::plan::{Plan, Slot, Work};
use std::sync::Arc;
use zeroize::Zeroize;

/// A backend that runs every batch twice, on `subject` and on `reference`, and withholds what differs.
pub struct Checked {
    /// Whose devices, policies and results these are.
    pub subject: Arc<dyn Backend>,
    /// What they are compared with: its first device, its default policy.
    pub reference: Arc<dyn Backend>,
}

/// What can be compared, in the order of computation: the first difference is the nearest to the fault.
const SLOTS: [Slot; 3] = [Slot::ForsRoots, Slot::ForsPk, Slot::XmssRoots];

impl Checked {
    fn reference_device(&self) -> Result<Device, Error> {
        self.reference.devices()?.into_iter().next().ok_or_else(|| Error::Device {
            device: self.reference.name().into(),
            what: "there is no device to check with".into(),
        })
    }
}

impl Backend for Checked {
    fn name(&self) -> &'static str {
        self.subject.name()
    }
    fn devices(&self) -> Result<Vec<Device>, Error> {
        self.subject.devices()
    }
    fn space(&self, device: &Device, plan: &Plan) -> Result<Vec<Axis>, Error> {
        self.subject.space(device, plan)
    }
    fn absent(&self) -> Option<String> {
        self.subject.absent()
    }
    fn jobs(&self, device: &Device, plan: &Plan, policy: &Policy) -> usize {
        self.subject.jobs(device, plan, policy)
    }
    fn compile(&self, device: &Device, plan: &Plan, batch: usize, policy: &Policy) {
        self.subject.compile(device, plan, batch, policy);
    }
    fn rates(&self, device: &Device) -> Option<Work> {
        self.subject.rates(device)
    }
    fn fingerprint(&self, device: &Device) -> String {
        self.subject.fingerprint(device)
    }
    fn free(&self, device: &Device) -> Option<u64> {
        self.subject.free(device)
    }
    fn bytes(&self, device: &Device, plan: &Plan, batch: usize, policy: &Policy) -> u64 {
        let reference =
            self.reference_device().map_or(0, |other| self.reference.bytes(&other, plan, batch, &Policy::default()));
        self.subject.bytes(device, plan, batch, policy) + reference + (batch * plan.out_bytes()) as u64
    }
    fn prepare(&self, device: &Device, plan: &Plan, batch: usize, policy: &Policy) -> Result<Box<dyn Program>, Error> {
        let other = self.reference_device()?;
        Ok(Box::new(CheckedProgram {
            device: device.name.clone(),
            subject: self.subject.prepare(device, plan, batch, policy)?,
            reference: self.reference.prepare(&other, plan, batch, &Policy::default())?,
        }))
    }
    fn hasher(&self, device: &Device, policy: &Policy) -> Result<Box<dyn Hasher>, Error> {
        Ok(Box::new(CheckedHasher {
            device: device.name.clone(),
            subject: self.subject.hasher(device, policy)?,
            reference: self.reference.hasher(&self.reference_device()?, &Policy::default())?,
        }))
    }
}

struct CheckedHasher {
    device: String,
    subject: Box<dyn Hasher>,
    reference: Box<dyn Hasher>,
}

impl Hasher for CheckedHasher {
    fn space(&self) -> Vec<Axis> {
        self.subject.space()
    }
    fn longest(&self) -> usize {
        self.subject.longest().min(self.reference.longest())
    }
    fn run(&mut self, messages: Messages<'_>, digests: &mut [[u8; 32]]) -> Result<Timing, Error> {
        let timing = self.subject.run(messages, digests)?;
        let mut expected = vec![[0; 32]; digests.len()];
        self.reference.run(messages, &mut expected)?;
        match digests.iter().zip(&expected).position(|(a, b)| a != b) {
            None => Ok(timing),
            Some(at) => {
                let what = format!("SHA-256 of message {at} differs");
                Err(Error::Inconsistent { device: self.device.clone(), what })
            }
        }
    }
}

struct CheckedProgram {
    device: String,
    subject: Box<dyn Program>,
    reference: Box<dyn Program>,
}

impl CheckedProgram {
    /// The first job whose share of two equally laid out values differs.
    fn compare(&self, what: &str, jobs: usize, subject: &[u8], reference: &[u8]) -> Result<(), Error> {
        let inconsistent = |what| Err(Error::Inconsistent { device: self.device.clone(), what });
        if subject.len() != reference.len() {
            return inconsistent(format!("{what}: {} bytes, the reference has {}", subject.len(), reference.len()));
        }
        let each = subject.len() / jobs.max(1);
        match subject.iter().zip(reference).position(|(a, b)| a != b) {
            Some(at) => inconsistent(format!("{what} of job {} differs at byte {}", at / each, at % each)),
            None => Ok(()),
        }
    }
}

impl Program for CheckedProgram {
    fn plan(&self) -> &Plan {
        self.subject.plan()
    }
    fn run(&mut self, batch: &Batch<'_>, out: &mut [u8]) -> Result<Timing, Error> {
        let mut expected = out.to_vec();
        let outcome = self.subject.run(batch, out).and_then(|timing| {
            self.reference.run(batch, &mut expected)?;
            for slot in SLOTS {
                if let (Some(a), Some(b)) = (self.subject.read(slot), self.reference.read(slot)) {
                    self.compare(&format!("{slot:?}"), batch.len(), &a, &b)?;
                }
            }
            self.compare(&format!("the output of {:?}", self.plan().op), batch.len(), out, &expected)?;
            Ok(timing)
        });
        // Two signatures that differ are two uses of a one-time key, enough to forge: neither may leave.
        if outcome.is_err() {
            out.zeroize();
            expected.zeroize();
        }
        outcome
    }
    fn read(&self, slot: Slot) -> Option<Vec<u8>> {
        self.subject.read(slot)
    }
}
