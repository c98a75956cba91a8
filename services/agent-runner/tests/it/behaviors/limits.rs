//! Limits of behaviours: of a step, of a behaviour, and of a scheduling period.

use holdfast_session::TurnOutcome;
use holdfast_testkit::Reply;
use holdfast_types::Entry;
use serde_json::json;

use super::script::{behavior_of, play, result};
use crate::world::World;

#[tokio::test]
async fn a_turn_that_reaches_a_limit_of_its_period_yields_and_goes_on() -> anyhow::Result<()> {
    let world = World::start().await?;
    world.use_behaviors(|settings| settings.max_steps = 2).await?;
    world.model.answer(play);
    let _runner = world.runner().await?;

    let sent = world.send(world.on_channel("s", "write the text and the note")).await?;

    assert_eq!(world.text(&sent).await?, "All is done.");
    assert_eq!(world.told_in(sent.session).await?, ["On it.", "All is done."]);
    // Nine steps, two at a time.
    let claims = world.number("select epoch from session.session_lease").await?;
    assert!(claims >= 5, "{claims}");
    assert_eq!(world.number("select count(*) from session.runs").await?, 1);
    assert_eq!(world.model.count(), 11);
    Ok(())
}

#[tokio::test]
async fn work_that_does_not_end_is_given_up() -> anyhow::Result<()> {
    let world = World::start().await?;
    world.use_behaviors(|settings| settings.max_steps = 2).await?;
    world.model.answer(|asked| match behavior_of(asked) {
        "plan" => result(&json!({"next_behavior": "DO"})),
        "do" => result(&json!({"next_behavior": "PLAN"})),
        _ => play(asked),
    });
    let _runner = world.runner().await?;

    let answer = world.answer(&world.say("s", "go round in circles").await?).await?;

    assert_eq!(answer.outcome, Some(TurnOutcome::Failed), "{answer:?}");
    assert!(answer.text.contains("did not come to an end"), "{}", answer.text);
    assert_eq!(world.model.count(), 16);
    Ok(())
}

#[tokio::test]
async fn a_behaviour_beyond_its_step_limit_is_left() -> anyhow::Result<()> {
    let world = World::start().await?;
    world.use_behaviors(|settings| settings.default = "plan".to_owned()).await?;
    world.model.answer(|asked| match behavior_of(asked) {
        "adjust" => result(&json!({"reply": "This leads nowhere.", "next_behavior": "END"})),
        _ => result(&json!({"thinking": "hm"})),
    });
    let _runner = world.runner().await?;

    assert_eq!(world.ask("s", "think").await?, "This leads nowhere.");

    let planned = world.asked_as("plan").len();
    assert_eq!(planned, 17, "a limit of 16 is 17 steps, from 0");
    Ok(())
}

#[tokio::test]
async fn calls_beyond_the_limits_of_a_step_are_not_made() -> anyhow::Result<()> {
    let world = World::start().await?;
    world.use_behaviors(|settings| settings.default = "check".to_owned()).await?;
    let calls = (0..20).map(|n| (format!("c{n}"), "agents_list".to_owned(), "{}".to_owned()));
    let calls: Vec<(String, String, String)> = calls.collect();
    world.model.answer(move |asked| match asked.tool_names().is_empty() {
        false => Reply::calls(calls.clone()),
        true => result(&json!({"reply": "enough", "next_behavior": "END"})),
    });
    let _runner = world.runner().await?;

    let sent = world.say("s", "look").await?;
    assert_eq!(world.text(&sent).await?, "enough");

    let (mut made, mut refused) = (0, 0);
    for entry in world.journal(sent.session).await? {
        match entry {
            Entry::Returned { output, failed: true, .. } => {
                assert!(output.starts_with("not made: the limit of calls at once"), "{output}");
                refused += 1;
            }
            Entry::Returned { .. } => made += 1,
            _ => {}
        }
    }
    // Eight rounds of eight calls of the twenty, and the call that applies the result.
    assert_eq!((made, refused), (8 * 8 + 1, 8 * 12));
    assert_eq!(world.model.count(), 9);
    assert!(world.model.violations().is_empty(), "{:?}", world.model.violations());
    Ok(())
}
