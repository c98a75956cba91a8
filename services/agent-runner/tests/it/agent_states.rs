//! Agents that a person disables: they take no turns, lose no message, and are enabled again.

use holdfast_directory::{Actor, AgentState};
use holdfast_session::NewMessage;
use holdfast_testkit::{Reply, model::Gate};
use tokio::time::Duration;

use crate::world::{World, place};

impl World {
    async fn set_agent_state(&self, state: AgentState) -> anyhow::Result<()> {
        let (tenant, by, name) = (self.tenant, Actor::Operator, self.agent.name.as_str());
        match state {
            // The default agent is not archived through the API.
            AgentState::Archived => {
                self.admin("update control.agents set state = 'archived'").await?;
            }
            _ => {
                self.directory.agents().set_state(tenant, by, name, state).await?;
            }
        }
        tokio::time::sleep(holdfast_directory::AGENT_CACHE_TTL).await;
        Ok(())
    }
}

#[tokio::test]
async fn a_disabled_agent_takes_no_turn_tells_it_once_and_answers_once_it_is_enabled()
-> anyhow::Result<()> {
    let world = World::start().await?;
    world.model.answer(|_| Reply::text("here I am"));
    let _runner = world.runner().await?;
    for state in [AgentState::Disabled, AgentState::Archived] {
        world.set_agent_state(state).await?;
        let (asked, name) = (world.model.count(), state.as_str());

        let on_channel =
            |text: &str| NewMessage { target: Some(place(name)), ..world.message(name, text) };
        let first = world.send(on_channel("are you there?")).await?;
        let id = first.session.as_uuid();
        let told = format!("select body from session.deliveries where session_id = '{id}'");
        world
            .until("the state is told", async || {
                world.texts(&told).await.is_ok_and(|told| told.len() == 1)
            })
            .await?;
        let second = world.send(on_channel("hello?")).await?;
        let program = world.say(&format!("{name}-program"), "hello").await?;
        tokio::time::sleep(Duration::from_millis(500)).await;
        let told = world.texts(&told).await?;
        assert_eq!(told.len(), 1, "{told:?}");
        assert!(told[0].contains("disabled at the moment"), "{told:?}");
        assert_eq!(world.model.count(), asked);

        world.set_agent_state(AgentState::Enabled).await?;
        world.sessions.wake_agent(world.tenant, world.agent.id).await?;
        world.bus.wake_run(0);
        for sent in [&first, &second, &program] {
            assert_eq!(world.text(sent).await?, "here I am");
        }
        let attempts = "select max(attempts)::bigint from session.session_lease";
        assert_eq!(world.number(attempts).await?, 0);
    }
    Ok(())
}

#[tokio::test]
async fn a_turn_that_runs_when_its_agent_is_disabled_ends_as_usual() -> anyhow::Result<()> {
    let world = World::start().await?;
    let held = Gate::default();
    world.model.queue([Reply::text("one two three").behind(&held)]);
    let _runner = world.runner().await?;
    let sent = world.say("s", "count").await?;
    world.until("the model is asked", async || world.model.count() == 1).await?;

    assert!(world.sessions.working_agents(world.tenant).await?.contains(&world.agent.id));
    world.set_agent_state(AgentState::Disabled).await?;
    held.open();

    assert_eq!(world.text(&sent).await?, "one two three");
    let idle = async || {
        world.sessions.working_agents(world.tenant).await.is_ok_and(|working| working.is_empty())
    };
    world.until("nobody works", idle).await
}
