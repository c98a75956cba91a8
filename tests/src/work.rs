//! An agent that mends a small program, as a scripted model would have it: the steps of the
//! work, and what is asked of the model at each.
//!
//! The model finds out where the work stands from what it is shown, as a real one does: a step is
//! done when a result says so. What it was shown before, it remembers, since a summary may stand
//! for it now. A call whose outcome it is told to be unknown is made again as another call.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use holdfast_testkit::model::{FakeModel, Reply, Request};
use serde_json::{Value, json};

/// What the person asks for.
pub const TASK: &str = "please mend the program, and have both parts looked after";

/// What the agent says when all of it is done.
pub const DONE: &str = "it is mended: the tests pass, and both parts are sound";

/// The program as it is given: it subtracts.
pub const BROKEN: &str = "expr \"$1\" - \"$2\"\n";

/// Its test, which notes that it ran.
pub const TEST: &str = "\
sum=$(sh add.sh 2 3)
if [ \"$sum\" = 5 ]; then echo PASS; else echo \"FAIL: got $sum\"; exit 1; fi
";

const PATCH: &str = "\
--- a/add.sh
+++ b/add.sh
@@ -1 +1 @@
-expr \"$1\" - \"$2\"
+expr \"$1\" + \"$2\"
";

/// What a command builds once the tests pass, in `built.txt`.
#[must_use]
pub fn built(name: &str) -> String {
    format!("5\n{name}\n")
}

/// The tools of the work: in a call of each a runner can be killed.
pub const TOOLS: [&str; 6] = ["act", "apply_patch", "exec", "list_files", "read", "sessions_spawn"];

/// A long text, of which two do not fit beside the rest into what the model reads at once.
#[must_use]
pub fn long(name: &str) -> String {
    (0..700).map(|line| format!("{name} {line}: nothing of interest\n")).collect()
}

/// The steps in their order, each with what its result must say.
const STEPS: [(&str, &str); 10] = [
    ("list", "add.sh"),
    ("read", "expr"),
    ("fails", "FAIL: got -1"),
    ("patch", "add.sh"),
    ("passes", "PASS"),
    ("build", "built"),
    ("fetch", "fetched"),
    ("deed", ""),
    ("long", "nothing of interest"),
    ("spawn", "works on it"),
];

#[derive(Debug, Clone)]
pub struct Work {
    /// What its deeds are known by.
    name: String,
    /// For how long helpers think in vain, the first time that they are asked.
    slow: Duration,
    done: Arc<Mutex<BTreeSet<String>>>,
    calls: Arc<AtomicU64>,
}

impl Work {
    /// Gives the model this work; what it was given before is forgotten. Helpers think in vain
    /// for so long, the first time that they are asked.
    #[must_use]
    pub fn teach(model: &FakeModel, name: &str, slow: Duration) -> Self {
        let (done, calls) = (Arc::default(), Arc::default());
        let work = Self { name: name.to_owned(), slow, done, calls };
        let script = work.clone();
        model.answer(move |request| script.answer(request));
        work
    }

    /// The steps that the model has seen done; `summary` if it was asked for one, and `asked-one`
    /// and `asked-two` if those helpers were.
    #[must_use]
    pub fn done(&self) -> BTreeSet<String> {
        self.steps().clone()
    }

    fn answer(&self, request: &Request) -> Reply {
        let messages = request.messages();
        if messages.first().is_some_and(|m| text(m).contains("conversation summarizer")) {
            self.steps().insert("summary".to_owned());
            return Reply::text("The agent is mending a program by steps.");
        }
        for part in ["one", "two"] {
            let task = format!("look after part {part}");
            if messages.iter().any(|m| m["role"] == "user" && text(m).trim() == task) {
                return self.look_after(part, messages);
            }
        }
        self.see(messages);
        let done = self.done();
        match STEPS.iter().find(|(step, _)| !done.contains(*step)) {
            Some((step, _)) => self.make(step),
            None if done.contains("told-one") && done.contains("told-two") => Reply::text(DONE),
            None => Reply::text("two are looking after the parts"),
        }
    }

    /// A subagent does one deed, and tells of it.
    fn look_after(&self, part: &str, messages: &[Value]) -> Reply {
        if messages.iter().any(|message| message["role"] == "tool") {
            return Reply::text(format!("part {part} is sound"));
        }
        if self.steps().insert(format!("asked-{part}")) && !self.slow.is_zero() {
            return Reply::hang(self.slow);
        }
        Reply::call(self.id(part), "act".to_owned(), self.deed(part).to_string())
    }

    /// Takes note of what is shown.
    fn see(&self, messages: &[Value]) {
        let mut done = self.steps();
        for message in messages {
            let said = text(message);
            if message["role"] == "tool" {
                let id = message["tool_call_id"].as_str().unwrap_or_default();
                let step = id.split('-').next().unwrap_or_default();
                let wanted = STEPS.iter().find(|(name, _)| *name == step);
                // A deed whose outcome is unknown must not be done again.
                if wanted.is_some_and(|(_, says)| said.contains(says)) {
                    done.insert(step.to_owned());
                }
            } else if message["role"] == "user" && said.contains("just completed") {
                for part in ["one", "two"] {
                    if said.contains(&format!("part {part} is sound")) {
                        done.insert(format!("told-{part}"));
                    }
                }
            }
        }
    }

    fn make(&self, step: &str) -> Reply {
        let call = |tool: &str, input: Value| (self.id(step), tool.to_owned(), input.to_string());
        let calls = match step {
            "list" => vec![call("list_files", json!({}))],
            "read" => vec![
                call("read", json!({"path": "add.sh"})),
                call("read", json!({"path": "test.sh"})),
            ],
            "patch" => vec![call("apply_patch", json!({"patch": PATCH}))],
            "build" => {
                let build = format!("(sh add.sh 2 3; echo {}) > built.txt; echo built", self.name);
                vec![call("exec", json!({"command": build}))]
            }
            "fetch" => {
                vec![call("exec", json!({"command": "echo fetched", "network": true}))]
            }
            "deed" => vec![call("act", self.deed("own"))],
            "long" => vec![
                call("read", json!({"path": "long/one.txt"})),
                call("read", json!({"path": "long/two.txt"})),
            ],
            "spawn" => ["one", "two"]
                .map(|part| {
                    let task = format!("look after part {part}");
                    call("sessions_spawn", json!({"task": task, "label": part}))
                })
                .into(),
            _ => vec![call("exec", json!({"command": "sh test.sh"}))],
        };
        Reply::calls(calls)
    }

    fn deed(&self, part: &str) -> Value {
        json!({"id": format!("{}:{part}", self.name)})
    }

    fn id(&self, step: &str) -> String {
        format!("{step}-{}", self.calls.fetch_add(1, Ordering::Relaxed))
    }

    fn steps(&self) -> MutexGuard<'_, BTreeSet<String>> {
        self.done.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn text(message: &Value) -> String {
    match &message["content"] {
        Value::String(text) => text.clone(),
        Value::Array(parts) => parts.iter().filter_map(|part| part["text"].as_str()).collect(),
        _ => String::new(),
    }
}
