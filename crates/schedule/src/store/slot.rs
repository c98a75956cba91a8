//! Slot: the name of a firing within its job, the same for all who refer to it.

use std::{fmt, str::FromStr};

use holdfast_types::{JobId, TenantId};
use jiff::Timestamp;
use uuid::Uuid;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Slot {
    /// Time given by the schedule, in whole microseconds like the database's.
    At(Timestamp),
    /// The `n`th retry of the slot at that time.
    Again {
        at: Timestamp,
        /// Number of the retry, from 1.
        n: u32,
    },
    /// Requested run, with the id of the request.
    Now(Uuid),
}

/// Text that is not a slot.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not a slot: write a time as in `2026-11-22T13:00:00Z`")]
pub struct InvalidSlot(String);

impl Slot {
    /// Returns the slot at a time, rounded to microseconds.
    #[must_use]
    pub fn at(time: Timestamp) -> Self {
        Self::At(whole(time))
    }
}

pub(crate) fn whole(time: Timestamp) -> Timestamp {
    Timestamp::from_microsecond(time.as_microsecond()).unwrap_or(time)
}

impl fmt::Display for Slot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::At(at) => write!(f, "{at}"),
            Self::Again { at, n } => write!(f, "{at}~{n}"),
            Self::Now(request) => write!(f, "now-{}", request.simple()),
        }
    }
}

impl FromStr for Slot {
    type Err = InvalidSlot;

    fn from_str(text: &str) -> Result<Self, InvalidSlot> {
        let invalid = || InvalidSlot(text.chars().take(80).collect());
        if let Some(request) = text.strip_prefix("now-") {
            return Uuid::try_parse(request).map(Self::Now).map_err(|_| invalid());
        }
        let time = |text: &str| text.parse::<Timestamp>().map(whole).map_err(|_| invalid());
        match text.split_once('~') {
            Some((at, n)) => {
                Ok(Self::Again { at: time(at)?, n: n.parse().map_err(|_| invalid())? })
            }
            None => Ok(Self::At(time(text)?)),
        }
    }
}

/// Reference to a firing: tenant, job and slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FiringRef {
    pub tenant: TenantId,
    pub job: JobId,
    pub slot: Slot,
}

impl FiringRef {
    /// Returns the idempotency key of the delivered message: `job:slot`, at most 100 bytes.
    #[must_use]
    pub fn idem_key(&self) -> String {
        format!("{}:{}", self.job, self.slot)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_slot_reads_back_as_it_was_written(
            micros in 0_i64..4_000_000_000_000_000,
            n in 1_u32..9,
            request: u128,
        ) {
            let at = Timestamp::from_microsecond(micros).unwrap();
            for slot in [Slot::At(at), Slot::Again { at, n }, Slot::Now(Uuid::from_u128(request))] {
                prop_assert_eq!(slot.to_string().parse(), Ok(slot));
                prop_assert!(slot.to_string().len() <= 64);
            }
        }
    }

    #[test]
    fn a_key_names_the_job_and_the_slot_and_nothing_finer_than_the_database_keeps() {
        let job = JobId::from(Uuid::from_u128(1));
        let time: Timestamp = "2026-11-22T13:00:00.123456789Z".parse().unwrap();

        let firing = FiringRef { tenant: TenantId::generate(), job, slot: Slot::at(time) };

        assert_eq!(
            firing.idem_key(),
            "job_00000000000000000000000000000001:2026-11-22T13:00:00.123456Z"
        );
    }

    #[test]
    fn what_is_no_slot_is_refused_with_what_to_write() {
        for text in ["", "soon", "now-", "now-x", "2026-11-22T13:00:00Z~", "~1"] {
            assert!(text.parse::<Slot>().unwrap_err().to_string().contains("is not a slot"));
        }
    }
}
