//! Rollback of a session's last step.

use holdfast_proto::gateway::v1::{RollBackStepRequest, RollBackStepResponse};
use serde_json::{Value, json};

use crate::{client::Client, error::Error, screen::Screen};

pub async fn roll_back(
    client: &Client,
    screen: &Screen,
    request: RollBackStepRequest,
) -> Result<(), Error> {
    let is_dry = request.dry_run;
    let again = request.again;
    let done = client.sessions().roll_back_step(client.request(request)).await;
    let done = client.answer(done)?;
    let of = format!("step {} of {} ({})", done.step, done.behavior, done.step_id);
    let sentence = match (is_dry, done.repeated, again) {
        (true, ..) => format!("{of} would be rolled back: do it with --yes"),
        (false, true, _) => format!("{of} was rolled back before"),
        (false, false, true) => format!("{of} is rolled back and runs again"),
        (false, false, false) => format!("{of} is rolled back"),
    };
    screen.done(&format!("{sentence}{}", lines(&done)), &thing(&done))
}

/// What is restored, what is left as it is, and what is not undone, a line for each.
fn lines(done: &RollBackStepResponse) -> String {
    let mut all: Vec<(&str, String)> = Vec::new();
    all.extend(done.files.iter().map(|path| ("file restored", path.clone())));
    all.extend(done.file_conflicts.iter().map(|conflict| {
        ("file left", format!("{}, changed by {}", conflict.path, conflict.changed_by))
    }));
    if done.todo_operations > 0 {
        all.push(("changes of todos undone", done.todo_operations.to_string()));
    }
    all.extend(
        done.refused_todo_operations.iter().map(|why| ("change of a todo lost", why.clone())),
    );
    all.extend(done.values.iter().map(|key| ("value restored", key.clone())));
    all.extend(done.value_conflicts.iter().map(|key| ("value left", key.clone())));
    all.extend(
        done.not_undone.iter().map(|one| ("not undone", format!("{}: {}", one.what, one.text))),
    );
    all.iter().map(|(what, text)| format!("\n{what}: {}", crate::screen::plain(text))).collect()
}

fn thing(done: &RollBackStepResponse) -> Value {
    json!({
        "step_id": done.step_id,
        "behavior": done.behavior,
        "step": done.step,
        "files": done.files,
        "file_conflicts": done
            .file_conflicts
            .iter()
            .map(|one| json!({ "path": one.path, "changed_by": one.changed_by }))
            .collect::<Vec<_>>(),
        "todo_operations": done.todo_operations,
        "refused_todo_operations": done.refused_todo_operations,
        "values": done.values,
        "value_conflicts": done.value_conflicts,
        "not_undone": done
            .not_undone
            .iter()
            .map(|one| json!({ "what": one.what, "text": one.text }))
            .collect::<Vec<_>>(),
        "repeated": done.repeated,
    })
}
