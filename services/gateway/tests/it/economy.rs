//! Hit points and wallets over gRPC.

use holdfast_proto::gateway::v1::{
    self as pb, EnableAgentRequest, FundWalletRequest, GetAgentRequest, GetHitPointsRequest,
    GetWalletRequest, ListPaymentsRequest, SetWalletLimitsRequest, UpdateAgentRequest,
    agents_client::AgentsClient, economy_client::EconomyClient,
};
use tonic::{Code, transport::Channel};

use crate::world::World;

async fn client(world: &World) -> EconomyClient<Channel> {
    EconomyClient::new(world.channel().await.unwrap())
}

async fn use_hit_points(
    world: &World,
    settings: pb::HitPointSettings,
) -> Result<(), tonic::Status> {
    let mut agents = AgentsClient::new(world.channel().await.unwrap());
    let get = world.anna.request(GetAgentRequest { agent: "main".into() });
    let mut agent = agents.get_agent(get).await?.into_inner().agent.unwrap();
    agent.hit_points = Some(settings);
    let update = UpdateAgentRequest { agent: Some(agent), base_version: None };
    agents.update_agent(world.anna.request(update)).await?;
    Ok(())
}

#[tokio::test]
async fn hit_points_are_off_until_set_and_a_disabled_agent_is_enabled() {
    let world = World::start().await.unwrap();
    let mut economy = client(&world).await;
    let get = || world.anna.request(GetHitPointsRequest { agent: "main".into() });

    let off = economy.get_hit_points(get()).await.unwrap().into_inner().hit_points.unwrap();
    assert_eq!((off.is_on, off.level_milli, off.state.as_str()), (false, 10_000_000, "enabled"));
    let wrong = pb::HitPointSettings { max: 10, floor: 10, rates: None };
    let refused = use_hit_points(&world, wrong).await.unwrap_err();
    assert_eq!(refused.code(), Code::InvalidArgument);
    let rates = pb::HitPointRates { per_token_milli: 7, recovery_milli: 1, ..Default::default() };
    let settings = pb::HitPointSettings { max: 50, floor: 10, rates: Some(rates) };
    use_hit_points(&world, settings).await.unwrap();

    let on = economy.get_hit_points(get()).await.unwrap().into_inner().hit_points.unwrap();
    assert_eq!((on.is_on, on.level_milli, on.settings), (true, 50_000, Some(settings)));
    world
        .number(
            "with new as (
                 insert into work.hit_points (tenant_id, agent_id, level, at)
                 select tenant_id, agent_id, 4000, clock_timestamp() from control.agents
                 returning 1)
             select count(*) from new",
        )
        .await
        .unwrap();
    let low = economy.get_hit_points(get()).await.unwrap().into_inner().hit_points.unwrap();
    assert_eq!((low.state.as_str(), low.rest_s), ("resting", 6_000));
    world
        .number(
            "with new as (
                 update work.hit_points set level = 0, disabled_at = clock_timestamp() returning 1)
             select count(*) from new",
        )
        .await
        .unwrap();
    let zero = economy.get_hit_points(get()).await.unwrap().into_inner().hit_points.unwrap();
    assert_eq!((zero.state.as_str(), zero.level_milli), ("disabled", 0));
    assert!(zero.disabled_at.is_some());

    let enable = world.anna.request(EnableAgentRequest { agent: "main".into() });
    let enabled = economy.enable_agent(enable).await.unwrap().into_inner().hit_points.unwrap();
    assert_eq!((enabled.state.as_str(), enabled.level_milli), ("enabled", 10_000));
}

#[tokio::test]
async fn a_wallet_is_funded_once_limited_and_listed() {
    let world = World::start().await.unwrap();
    let mut economy = client(&world).await;
    let get = || world.anna.request(GetWalletRequest { agent: "main".into() });

    let empty = economy.get_wallet(get()).await.unwrap().into_inner().wallet.unwrap();
    assert_eq!(empty.balance, "0.00");
    assert!(!empty.limits.unwrap().is_authorized);
    let fund = FundWalletRequest {
        agent: "main".into(),
        amount: "25.50".into(),
        source: "content network".into(),
        request_id: "one".into(),
    };
    for _ in 0..2 {
        economy.fund_wallet(world.anna.request(fund.clone())).await.unwrap();
    }
    let limits = pb::WalletLimits {
        is_authorized: true,
        per_payment: "5.00".into(),
        per_day: "10.00".into(),
        per_task: "5.00".into(),
        per_subagent: "0.00".into(),
        payees: vec!["shop".into()],
    };
    let set = SetWalletLimitsRequest { agent: "main".into(), limits: Some(limits.clone()) };
    economy.set_wallet_limits(world.anna.request(set.clone())).await.unwrap();

    let wallet = economy.get_wallet(get()).await.unwrap().into_inner().wallet.unwrap();
    assert_eq!((wallet.balance.as_str(), wallet.limits), ("25.50", Some(limits.clone())));
    let list = world.anna.request(ListPaymentsRequest { agent: "main".into(), limit: 0 });
    let payments = economy.list_payments(list).await.unwrap().into_inner().payments;
    assert_eq!(payments.len(), 1);
    assert_eq!(
        (payments[0].kind.as_str(), payments[0].party.as_str(), payments[0].amount.as_str()),
        ("income", "content network", "25.50")
    );

    for wrong in ["", "0", "-1", "1e9", "99999999999999"] {
        let fund = FundWalletRequest { amount: wrong.into(), ..fund.clone() };
        let refused = economy.fund_wallet(world.anna.request(fund)).await.unwrap_err();
        assert_eq!(refused.code(), Code::InvalidArgument, "{wrong}");
    }
    let wrong = pb::WalletLimits { per_day: "much".into(), ..limits.clone() };
    let set = SetWalletLimitsRequest { limits: Some(wrong), ..set };
    let refused = economy.set_wallet_limits(world.anna.request(set)).await.unwrap_err();
    assert_eq!(refused.code(), Code::InvalidArgument);
    let unknown = world.anna.request(GetWalletRequest { agent: "nobody".into() });
    assert_eq!(economy.get_wallet(unknown).await.unwrap_err().code(), Code::NotFound);
}
