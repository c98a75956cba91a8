//! Steps of a plan: summaries of chunks, then merges.

use holdfast_types::{Entry, Fault, Kind};

use super::{Plan, prompt::SummaryRequest};
use crate::tokens::tokens;

/// Unusable answers of a summariser.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The number of answers differs from the number of requests.
    #[error("`{asked}` questions have `{answered}` answers: give one for each, in order")]
    Miscounted { asked: usize, answered: usize },
    /// An empty answer, by its index: it cannot replace messages.
    #[error("the answer to question `{0}` is empty: ask again, or drop the oldest instead")]
    Empty(usize),
}

impl Fault for Error {
    fn kind(&self) -> Kind {
        match self {
            Self::Miscounted { .. } => Kind::Internal,
            Self::Empty(_) => Kind::Unavailable,
        }
    }
}

/// Next action of a plan.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Progress {
    Ask(Plan),
    Done(Summary),
}

/// A summary and its range.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Summary {
    pub text: String,
    /// Number of the journal's newest entries that it did not replace when it was planned.
    pub keeps: u32,
}

impl Summary {
    /// Returns the entry to append. `since` entries that were appended after the plan was made are
    /// kept too.
    ///
    /// The caller must check that the journal has not grown further when the entry is stored.
    #[must_use]
    pub fn entry(self, since: u32) -> Entry {
        Entry::summary(self.text, self.keeps.saturating_add(since))
    }
}

impl Plan {
    /// Returns the current requests, which are independent of each other.
    #[must_use]
    pub fn requests(&self) -> &[SummaryRequest] {
        &self.requests
    }

    /// Number of the journal's newest entries that the summary will not replace.
    #[must_use]
    pub const fn keeps(&self) -> u32 {
        self.keeps
    }

    /// Takes one answer for each request, in order. A single answer is the summary; several are
    /// merged by another request, oldest first (CMP-005).
    ///
    /// # Errors
    ///
    /// If an answer is missing or empty. The plan is lost, and nothing has changed.
    pub fn take_answers(self, answers: Vec<String>) -> Result<Progress, Error> {
        if answers.len() != self.requests.len() {
            let (asked, answered) = (self.requests.len(), answers.len());
            return Err(Error::Miscounted { asked, answered });
        }
        if let Some(at) = answers.iter().position(|answer| answer.trim().is_empty()) {
            return Err(Error::Empty(at));
        }
        if let [text] = answers.as_slice() {
            let text = match self.remark {
                Some(remark) => format!("{}\n\n{remark}", text.trim()),
                None => text.trim().to_owned(),
            };
            return Ok(Progress::Done(Summary { text, keeps: self.keeps }));
        }
        let groups = groups(&answers, self.max_merge);
        let merge = |group: &[String]| {
            let mut request = SummaryRequest::merge(group);
            request.add_wish(&self.wish);
            request
        };
        let requests = groups.into_iter().map(merge).collect();
        Ok(Progress::Ask(Self { requests, ..self }))
    }
}

/// Groups summaries for merging: as many as fit, and at least two, so that the merging ends.
fn groups(summaries: &[String], max_tokens: usize) -> Vec<&[String]> {
    let mut groups = Vec::new();
    let (mut start, mut total) = (0, 0_usize);
    for (at, summary) in summaries.iter().enumerate() {
        let more = tokens(summary);
        // A single last summary joins the group before it.
        let is_last = at + 1 == summaries.len();
        if at - start >= 2 && total + more > max_tokens && !is_last {
            groups.push(&summaries[start..at]);
            (start, total) = (at, 0);
        }
        total += more;
    }
    groups.push(&summaries[start..]);
    groups
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn plan(questions: usize, max_merge: usize) -> Plan {
        let request = SummaryRequest { prompt: "?".into(), max_output: 1 };
        let (requests, wish) = (vec![request; questions], String::new());
        Plan { requests, keeps: 3, max_merge, remark: None, wish }
    }

    fn answers(count: usize) -> Vec<String> {
        (0..count).map(|at| format!("part {at}")).collect()
    }

    #[test]
    fn a_single_answer_is_the_summary_as_it_is() {
        let done = plan(1, 100).take_answers(vec![" they met\n".into()]).unwrap();

        let Progress::Done(summary) = done else { panic!("{done:?}") };
        assert_eq!(summary.clone().entry(0), Entry::summary("they met", 3));
        assert_eq!(summary.entry(2), Entry::summary("they met", 5));
    }

    #[test]
    fn several_answers_are_merged_by_one_more_question() {
        let more = plan(2, 100).take_answers(answers(2)).unwrap();

        let Progress::Ask(merging) = more else { panic!("{more:?}") };
        assert_eq!(merging.requests(), [SummaryRequest::merge(&answers(2))]);
        let done = merging.take_answers(vec!["all".into()]).unwrap();
        assert_eq!(done, Progress::Done(Summary { text: "all".into(), keeps: 3 }));
    }

    #[test]
    fn what_matters_to_the_one_who_asks_is_told_in_each_question() {
        let plan = plan(2, 100).with_wish("the\nnames");
        assert!(plan.requests().iter().all(|asked| asked.prompt.ends_with(": the names")));

        let more = plan.take_answers(answers(2)).unwrap();

        let Progress::Ask(merging) = more else { panic!("{more:?}") };
        assert!(merging.requests()[0].prompt.ends_with(": the names"));
    }

    #[test]
    fn what_was_left_out_is_remarked_at_the_end() {
        let plan = Plan { remark: Some("left out"), ..plan(1, 100) };

        let done = plan.take_answers(vec!["they met".into()]).unwrap();

        let text = "they met\n\nleft out".to_owned();
        assert_eq!(done, Progress::Done(Summary { text, keeps: 3 }));
    }

    #[test]
    fn answers_that_make_no_summary_are_refused() {
        let blank = vec!["a".into(), " \n".into()];

        assert_eq!(plan(2, 9).take_answers(blank), Err(Error::Empty(1)));
        assert_eq!(
            plan(2, 9).take_answers(answers(1)),
            Err(Error::Miscounted { asked: 2, answered: 1 })
        );
        assert_eq!(Error::Empty(1).kind(), Kind::Unavailable);
    }

    proptest! {
        #[test]
        fn merging_ends_and_loses_no_part(count in 1_usize..40, max in 0_usize..30) {
            let mut progress = plan(count, max).take_answers(answers(count)).unwrap();
            let mut rounds = 0;

            while let Progress::Ask(plan) = progress {
                rounds += 1;
                prop_assert!(rounds < 8);
                // A merge keeps the order of the parts.
                let merged = plan.requests().iter().map(|request| {
                    let words: Vec<&str> = request.prompt.split_whitespace().collect();
                    let parts = words.windows(2).filter(|w| w[0] == "part").map(|w| w.join(" "));
                    parts.collect::<Vec<_>>().join(" ")
                });
                let merged = merged.collect();
                progress = plan.take_answers(merged).unwrap();
            }

            let Progress::Done(summary) = progress else { unreachable!() };
            prop_assert_eq!(summary.text, answers(count).join(" "));
        }
    }
}
