//! Records of steps: worklog, tasks and ledger, saved with the step or not at all.

use std::time::Duration;

use holdfast_types::{BehaviorRole, RunId, TodoStatus, Usage};
use holdfast_work::{
    ActionKind, ActionRecord, ImpactLevel, LedgerFilter, ModelCall, Period, StepRecord, StepStatus,
    apply_todos, record_period, record_step, tasks_of, worklog_page, worklog_text,
};
use jiff::Timestamp;

use crate::world::{World, agent, update};

/// A step with two model calls, of which one failed, a tool and an action.
pub fn step(summary: &str) -> StepRecord {
    let usage = Usage { input: 1_000, cached: 200, output: 34, ..Usage::default() };
    let call = ModelCall {
        model: "demo".to_owned(),
        usage,
        micros: 617,
        error: None,
        duration: Duration::from_millis(20),
    };
    let failed = ModelCall {
        usage: Usage::default(),
        micros: 0,
        error: Some("overloaded".to_owned()),
        ..call.clone()
    };
    let tool = ActionRecord {
        call: "c1".to_owned(),
        tool: "read".to_owned(),
        output: "the file".to_owned(),
        ..ActionRecord::default()
    };
    let action = ActionRecord {
        kind: ActionKind::Action,
        call: "c2".to_owned(),
        tool: "exec".to_owned(),
        impact: ImpactLevel::External,
        error: Some("exit code 1".to_owned()),
        artifacts: vec!["report.md".to_owned()],
        ..ActionRecord::default()
    };
    StepRecord {
        summary: summary.to_owned(),
        next: "CHECK".to_owned(),
        messages: vec!["do it".to_owned()],
        replies: vec!["it is being done".to_owned()],
        model_calls: vec![failed, call],
        actions: vec![tool, action],
        started_at: Timestamp::from_second(1_800_000_000).unwrap_or_default(),
        finished_at: Timestamp::from_second(1_800_000_001).unwrap_or_default(),
        ..StepRecord::default()
    }
}

#[tokio::test]
async fn a_step_is_in_the_worklog_in_the_tasks_and_in_the_ledger() -> anyhow::Result<()> {
    let world = World::start().await?;
    let place = world.step(RunId::from(world.list.as_uuid()), "DO:todo=T001", 3);

    let mut tx = world.tx().await?;
    record_step(&mut tx, &place, &step("painted the roof")).await?;
    let period = Period { steps: 1, outcome: "wait".to_owned(), ..Period::default() };
    record_period(&mut tx, &place, &period).await?;
    tx.commit().await?;

    let mut tx = world.tx().await?;
    let mut records = worklog_page(&mut tx, world.list, (None, 20)).await?;
    records.reverse();
    let kinds: Vec<(i64, &str, &str)> = records
        .iter()
        .map(|record| (record.seq, record.kind.as_str(), record.status.as_str()))
        .collect();
    assert_eq!(
        kinds,
        [
            (1, "GetMessage.v1", "OK"),
            (2, "FunctionRecord.v1", "OK"),
            (3, "ActionRecord.v1", "FAILED"),
            (4, "ReplyMessage.v1", "OK"),
            (5, "StepSummary.v1", "OK"),
        ]
    );
    assert!(records.iter().all(|record| record.commit_state == "COMMITTED"));
    // What people wrote is in the history only, where their erasure finds it.
    assert!(!format!("{:?}", records[0]).contains("do it"), "{:?}", records[0]);
    let action = &records[2];
    assert_eq!((action.impact_level.as_str(), action.importance), ("external", 2));
    assert_eq!((action.artifacts.as_slice(), action.step), (&["report.md".to_owned()][..], 3));
    assert_eq!(
        records[4].digest,
        "DO:todo=T001 step 3 (OK, 1034 tokens, $0.000617): painted the roof"
    );
    let text = worklog_text(&mut tx, world.list, 1_000).await?.text;
    assert!(text.contains("- exec failed: exit code 1"), "{text}");
    assert!(text.contains("omitted_event_types: FunctionRecord.v1, GetMessage.v1"), "{text}");

    let tasks = tasks_of(&mut tx, world.list, 10).await?;
    let tree: Vec<(bool, &str, &str, &str)> = tasks
        .iter()
        .map(|task| {
            let is_part = task.parent == Some(tasks[0].id);
            (is_part, task.kind.as_str(), task.name.as_str(), task.status.as_str())
        })
        .collect();
    assert_eq!(
        tree,
        [
            (false, "step", "DO:todo=T001", "OK"),
            (true, "model", "demo", "FAILED"),
            (true, "model", "demo", "OK"),
            (true, "tool", "read", "OK"),
            (true, "action", "exec", "FAILED"),
            (true, "result", "CHECK", "OK"),
        ]
    );
    assert_eq!((tasks[0].usage.input, tasks[0].micros, tasks[2].micros), (1_000, 617, 617));
    assert_eq!(tasks[1].error.as_deref(), Some("overloaded"));
    tx.finish_reading();

    let filter = LedgerFilter { limit: 20, ..LedgerFilter::default() };
    let mut entries = world.ledger.page(world.tenant, &filter).await?;
    entries.reverse();
    let lines: Vec<(&str, &str, &str, u64)> = entries
        .iter()
        .map(|entry| {
            (entry.kind.as_str(), entry.name.as_str(), entry.outcome.as_str(), entry.micros)
        })
        .collect();
    assert_eq!(
        lines,
        [
            ("model", "demo", "failed", 0),
            ("model", "demo", "ok", 617),
            ("tool", "read", "ok", 0),
            ("tool", "exec", "failed", 0),
            ("period", "DO:todo=T001", "wait", 0),
        ]
    );
    Ok(())
}

#[tokio::test]
async fn records_of_a_step_are_pending_until_it_is_saved_and_aborted_if_it_is_not()
-> anyhow::Result<()> {
    let world = World::start().await?;
    world.plan(2).await?;
    let run = RunId::from(world.list.as_uuid());
    let states = async || {
        let mut tx = world.tx().await?;
        let records = worklog_page(&mut tx, world.list, (None, 20)).await?;
        let states = records.iter().rev().map(|record| record.commit_state.clone());
        anyhow::Ok(states.collect::<Vec<_>>())
    };
    let doing = agent(BehaviorRole::Do);

    // A step that changes a todo and is never saved.
    let lost = world.step(run, "DO:todo=T001", 1);
    world.apply_at(&lost, &doing, "a", &[update("T001", TodoStatus::InProgress)]).await?;
    assert_eq!(states().await?, ["COMMITTED", "PENDING"]);
    let mut tx = world.tx().await?;
    assert!(!worklog_text(&mut tx, world.list, 1_000).await?.text.contains("T001"));
    tx.finish_reading();

    // The next step is saved with its changes.
    let saved = world.step(run, "DO:todo=T001", 2);
    let mut tx = world.tx().await?;
    let ops = [update("T001", TodoStatus::Complete)];
    apply_todos(&mut tx, &saved, &doing, "b", &ops).await?;
    record_step(&mut tx, &saved, &StepRecord::default()).await?;
    tx.commit().await?;
    assert_eq!(states().await?, ["COMMITTED", "ABORTED", "COMMITTED", "COMMITTED"]);

    // A step whose transaction is rolled back has written nothing.
    let rolled_back = world.step(run, "DO:todo=T001", 3);
    let mut tx = world.tx().await?;
    let failed = StepRecord { status: StepStatus::Failed, ..StepRecord::default() };
    record_step(&mut tx, &rolled_back, &failed).await?;
    tx.rollback().await?;
    assert_eq!(states().await?.len(), 4);
    assert_eq!(world.number("select count(*) from work.tasks where kind = 'step'").await?, 1);
    Ok(())
}
