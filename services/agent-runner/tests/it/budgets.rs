//! Daily budgets are not exceeded, and users are told when one is used up.

use std::time::Duration;

use holdfast_directory::{Actor, Budget};
use holdfast_llm::{ModelCard, Prices};
use holdfast_session::{MessageStatus, TurnOutcome, UsageGroup};
use holdfast_testkit::{Reply, model::Usage};

use crate::world::World;

impl World {
    pub async fn budget(&self, budget: Budget) -> anyhow::Result<()> {
        self.sessions.usage().open_budget(self.tenant, budget.agent).await?;
        Ok(self.directory.budgets().put(self.tenant, Actor::Operator, &budget).await?)
    }

    /// The whole tenant may use so many tokens a day.
    async fn tokens(&self, tokens: u64) -> anyhow::Result<()> {
        self.budget(Budget { agent: None, tokens: Some(tokens), micros: None }).await
    }

    /// The model writes no more than this, and costs $1 for a million tokens read, and $10 for a
    /// million written.
    pub async fn card(&self, max_output: u32) -> anyhow::Result<()> {
        let prices = Prices { input: 1_000, output: 10_000, ..Prices::default() };
        let card = ModelCard { max_output, prices: Some(prices), ..ModelCard::default() };
        let model = "fake:one".parse()?;
        Ok(self.directory.models().put(self.tenant, Actor::Operator, &model, &card).await?)
    }

    /// The model charges so much for each answer.
    pub fn charges(&self, prompt: u64, completion: u64) {
        let usage = Usage { prompt, cached: 0, completion };
        self.model.answer(move |_| Reply::text("well").usage(usage));
    }

    async fn refused(&self, session: &str) -> anyhow::Result<MessageStatus> {
        let answer = self.answer(&self.say(session, "hello").await?).await?;
        assert_eq!(answer.outcome, Some(TurnOutcome::Failed), "{answer:?}");
        Ok(answer)
    }
}

/// An agent is believed to be what it was for a second.
async fn a_moment() {
    tokio::time::sleep(Duration::from_millis(1_100)).await;
}

#[tokio::test]
async fn a_spent_budget_is_told_before_the_model_is_asked_and_renews_with_the_day()
-> anyhow::Result<()> {
    let world = World::start().await?;
    world.card(1_000).await?;
    world.charges(7_000, 1_000);
    world.tokens(20_000).await?;
    let _runner = world.runner().await?;

    for session in ["a", "b"] {
        assert_eq!(world.ask(session, "hello").await?, "well");
    }
    // 16,000 are used, and what is read is some 3,000.
    world.charges(4_500, 500);
    assert_eq!(world.ask("c", "hello").await?, "well");
    let told = world.refused("d").await?;

    let renews = "20000 tokens a day, is spent. It renews at midnight UTC, in ";
    assert!(told.text.contains(renews), "{}", told.text);
    assert_eq!(world.model.count(), 3);
    let reasons = world.texts("select reason from session.runs where outcome = 'failed'").await?;
    assert_eq!(reasons, ["budget_spent"]);
    assert_eq!(world.number("select tokens from session.spending").await?, 21_000);

    world.admin("update session.spending set day = day - 1").await?;
    assert_eq!(world.ask("d", "hello").await?, "well");
    Ok(())
}

#[tokio::test]
async fn money_is_counted_by_the_catalogue_and_recorded_with_each_run() -> anyhow::Result<()> {
    let world = World::start().await?;
    world.card(1_000).await?;
    world.charges(10_000, 100);
    // One answer costs 11,000 millionths.
    let agent = Some(world.agent.id);
    world.budget(Budget { agent, tokens: None, micros: Some(22_000) }).await?;
    let _runner = world.runner().await?;

    assert_eq!(world.ask("a", "hello").await?, "well");
    assert_eq!(world.ask("a", "hello").await?, "well");
    let told = world.refused("b").await?;

    assert!(told.text.contains("this assistant's budget, $0.022 a day, is spent"), "{}", told.text);
    let costs = "select string_agg(cost_micros::text, ' ' order by finished_at) from session.runs";
    assert_eq!(world.texts(costs).await?, ["11000 11000 0"]);
    let groups = [UsageGroup::Day, UsageGroup::Model];
    let lines = world.sessions.usage().by_groups(world.tenant, agent, 1, &groups).await?;
    let answered = lines.iter().find(|line| line.model == "fake:one").unwrap();
    assert_eq!((answered.runs, answered.micros, answered.usage.input), (2, 22_000, 20_000));

    // More is allowed, and what was used stays used.
    world.budget(Budget { agent, tokens: None, micros: Some(50_000) }).await?;
    a_moment().await;
    assert_eq!(world.ask("b", "hello").await?, "well");
    assert_eq!(world.number("select micros from session.spending").await?, 33_000);
    Ok(())
}

#[tokio::test]
async fn what_a_summary_uses_in_a_turn_is_charged_too() -> anyhow::Result<()> {
    let world = World::start().await?;
    world.card(1_000).await?;
    world.tokens(1_000_000).await?;
    let usage = Usage { prompt: 900, cached: 0, completion: 100 };
    let long = "much ".repeat(6_000);
    world.model.answer(move |request| {
        let is_summary = request.body.to_string().contains("conversation summarizer");
        let said = match (is_summary, request.last_user_text() == "and now?") {
            (true, _) => "They spoke much.",
            (false, true) => "well",
            (false, false) => long.as_str(),
        };
        Reply::text(said).usage(usage)
    });
    let mut config = world.config();
    config.runner.context_tokens = 20_000;
    config.runner.summaries = 0;
    let _runner = world.runner_with(config, |app| app).await?;

    for text in ["tell me much", "more", "and now?"] {
        world.ask("s", text).await?;
    }

    let asked = i64::try_from(world.model.count())?;
    assert!(asked > 3, "nothing was summarised");
    assert_eq!(world.number("select tokens from session.spending").await?, asked * 1_000);
    Ok(())
}

#[tokio::test]
async fn sessions_at_once_on_two_runners_use_no_more_than_there_is() -> anyhow::Result<()> {
    let world = World::start().await?;
    world.card(1_000).await?;
    world.charges(6_000, 1_000);
    world.model.latency(Duration::from_millis(300));
    world.tokens(22_000).await?;
    let _runners = (world.runner().await?, world.runner().await?);

    let mut sent = Vec::new();
    for n in 0..12 {
        sent.push(world.say(&format!("s{n}"), "hello").await?);
    }
    let mut refused = 0;
    for accepted in &sent {
        let answer = world.answer(accepted).await?;
        if answer.outcome == Some(TurnOutcome::Failed) {
            let is_told = answer.text.contains("is spent") || answer.text.contains("set aside");
            assert!(is_told, "{}", answer.text);
            refused += 1;
        }
    }

    let requests = world.model.requests();
    let has_files = requests.iter().all(|asked| !asked.body.to_string().contains("[MISSING]"));
    assert!(has_files, "a session began before its agent's first files were there");
    // Input is estimated at about 3,000 tokens but is 6,000: each parallel answer may exceed the
    // budget by the difference, and there is room for at most five.
    let answered = world.model.count();
    assert!(refused > 0 && (1..=6).contains(&answered), "{refused} refused, {answered} answered");
    assert_eq!(
        world.number("select tokens from session.spending").await?,
        7_000 * i64::try_from(answered)?
    );
    Ok(())
}

#[tokio::test]
async fn an_answer_is_kept_as_short_as_what_is_left() -> anyhow::Result<()> {
    let world = World::start().await?;
    world.card(30_000).await?;
    world.tokens(20_000).await?;
    let _runner = world.runner().await?;

    world.ask("a", "hello").await?;

    let asked = world.model.requests().pop().unwrap().body.clone();
    let most = [&asked["max_completion_tokens"], &asked["max_tokens"]];
    let most = most.iter().find_map(|most| most.as_u64()).unwrap();
    assert!((5_000..20_000).contains(&most), "{most}");
    Ok(())
}

#[tokio::test]
async fn without_a_budget_nothing_is_counted_or_set_aside() -> anyhow::Result<()> {
    let world = World::start().await?;
    let _runner = world.runner().await?;

    world.ask("a", "hello").await?;

    assert_eq!(world.number("select count(*) from session.spending").await?, 0);
    assert_eq!(world.number("select count(*) from control.auth_stats").await?, 1, "its own put");
    Ok(())
}

#[tokio::test]
async fn a_budget_holds_when_redis_has_lost_everything_and_what_was_used_before_it_counts()
-> anyhow::Result<()> {
    let world = World::start().await?;
    world.card(1_000).await?;
    world.charges(9_000, 1_000);
    let _runner = world.runner().await?;
    assert_eq!(world.ask("a", "hello").await?, "well");

    world.tokens(12_000).await?;
    a_moment().await;
    world.flush_redis().await?;

    let told = world.refused("a").await?;
    assert!(told.text.contains("is spent"), "{}", told.text);
    Ok(())
}
