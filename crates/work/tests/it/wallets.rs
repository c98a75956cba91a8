//! Wallets: limits, payees, one payment for a key, payments at a time.

use futures::future::join_all;
use holdfast_pg::TenantTx;
use holdfast_types::{AgentId, Money, RunId, TenantId};
use holdfast_work::{
    Error, InternalCurrency, PaymentOrder, Place, ProviderFuture, Receipt, WalletProvider,
    WalletRules, Work,
};
use uuid::Uuid;

use crate::world::World;

fn money(text: &str) -> Money {
    text.parse().unwrap()
}

fn order(key: &str, amount: &str) -> PaymentOrder {
    PaymentOrder {
        key: key.to_owned(),
        payee: "shop".to_owned(),
        amount: money(amount),
        purpose: "paper".to_owned(),
        alternatives: "none is cheaper".to_owned(),
        expected_saving: "2.00".to_owned(),
        risk: "it may be late".to_owned(),
        by_subagent: false,
    }
}

fn rules() -> WalletRules {
    WalletRules {
        is_authorized: true,
        per_payment: money("5"),
        per_day: money("12"),
        per_task: money("8"),
        per_subagent: money("1"),
        payees: vec!["shop".to_owned()],
    }
}

struct Bank {
    world: World,
    work: Work,
}

impl Bank {
    async fn start() -> anyhow::Result<Self> {
        let world = World::start().await?;
        world.add_agent().await?;
        let work = Work::new(world.pools.clone());
        work.set_wallet_rules(world.tenant, world.agent, &rules()).await?;
        work.receive(world.tenant, world.agent, ("first", "owner"), money("100")).await?;
        Ok(Self { world, work })
    }

    /// Place of a run of its own.
    fn task(&self) -> Place {
        let run = RunId::from(Uuid::now_v7());
        Place { run: Some(run), ..Place::outside(self.world.list, self.world.agent) }
    }

    async fn pay(
        &self,
        place: &Place,
        order: &PaymentOrder,
    ) -> anyhow::Result<Result<Receipt, String>> {
        Ok(self.work.pay(self.world.tenant, place, &InternalCurrency, order).await?)
    }

    async fn balance(&self) -> anyhow::Result<String> {
        let wallet = self.work.wallet(self.world.tenant, self.world.agent).await?;
        Ok(wallet.balance.to_string())
    }

    async fn payments(&self) -> anyhow::Result<i64> {
        self.world.number("select count(*) from work.payments where kind = 'payment'").await
    }
}

#[tokio::test]
async fn a_payment_has_a_receipt_an_explanation_and_an_entry_in_the_ledger() -> anyhow::Result<()> {
    let bank = Bank::start().await?;
    let place = bank.task();

    let receipt = bank.pay(&place, &order("k", "2.50")).await?.map_err(anyhow::Error::msg)?;

    assert_eq!(receipt.balance, money("97.5"));
    let (tenant, agent) = (bank.world.tenant, bank.world.agent);
    let payments = bank.work.payments(tenant, agent, 10).await?;
    assert_eq!((payments[0].party.as_str(), payments[0].amount), ("shop", money("2.5")));
    assert_eq!((payments[1].kind.as_str(), payments[1].amount), ("income", money("100")));
    let records = bank.work.worklog(tenant, bank.world.list, (None, 5)).await?;
    assert_eq!(records[0].kind, "Payment.v1");
    for (field, text) in [
        ("purpose", "paper"),
        ("alternatives", "none is cheaper"),
        ("expected_saving", "2.00"),
        ("risk", "it may be late"),
    ] {
        assert_eq!(records[0].payload[field], text);
    }
    bank.world.ledger.chain(tenant, 10).await?;
    let check = bank.world.ledger.verify(tenant).await?;
    assert_eq!((check.entries, check.broken_at), (2, None));
    let changed = "update work.ledger set amount = 1 where kind = 'wallet' and outcome = 'paid'";
    bank.world.admin(changed).await?;
    assert!(bank.world.ledger.verify(tenant).await?.broken_at.is_some());
    Ok(())
}

#[tokio::test]
async fn each_limit_refuses_and_what_is_refused_leaves_nothing() -> anyhow::Result<()> {
    let bank = Bank::start().await?;
    let (first, second) = (bank.task(), bank.task());
    let refused = async |place: &Place, order: PaymentOrder| -> anyhow::Result<String> {
        match bank.pay(place, &order).await? {
            Ok(receipt) => anyhow::bail!("{receipt:?}"),
            Err(why) => Ok(why),
        }
    };

    let unlisted = PaymentOrder { payee: "casino".to_owned(), ..order("a", "1") };
    assert!(refused(&first, unlisted).await?.contains("payee"));
    let silent = PaymentOrder { risk: " ".to_owned(), ..order("a", "1") };
    assert!(refused(&first, silent).await?.contains("`risk`"));
    assert!(refused(&first, order("a", "0")).await?.contains("above 0"));
    assert!(refused(&first, order("a", "5.000001")).await?.contains("the limit of a payment"));
    let subagent = PaymentOrder { by_subagent: true, ..order("a", "1.01") };
    assert!(refused(&first, subagent).await?.contains("a subagent's task"));
    assert_eq!((bank.payments().await?, bank.balance().await?), (0, "100.00".to_owned()));

    bank.pay(&first, &order("b", "5")).await?.map_err(anyhow::Error::msg)?;
    assert!(refused(&first, order("c", "3.01")).await?.contains("the limit of a task"));
    bank.pay(&first, &order("d", "3")).await?.map_err(anyhow::Error::msg)?;
    assert!(refused(&second, order("e", "4.01")).await?.contains("the limit of a day"));
    bank.pay(&second, &order("f", "4")).await?.map_err(anyhow::Error::msg)?;
    // Another day has its own limit, and its payments do not count as this task's.
    bank.world.admin("update work.payments set created_at = created_at - interval '1 day'").await?;
    bank.pay(&bank.task(), &order("g", "4.01")).await?.map_err(anyhow::Error::msg)?;

    let off = WalletRules { is_authorized: false, ..rules() };
    bank.work.set_wallet_rules(bank.world.tenant, bank.world.agent, &off).await?;
    assert!(refused(&bank.task(), order("h", "1")).await?.contains("authorised"));
    assert_eq!((bank.payments().await?, bank.balance().await?), (4, "83.99".to_owned()));
    Ok(())
}

#[tokio::test]
async fn a_key_pays_once_and_an_income_comes_once() -> anyhow::Result<()> {
    let bank = Bank::start().await?;
    let place = bank.task();

    let same = order("same", "5");
    let all = join_all((0..8).map(|_| bank.pay(&place, &same))).await;

    let mut receipts = Vec::new();
    for paid in all {
        receipts.push(paid?.map_err(anyhow::Error::msg)?);
    }
    assert!(receipts.iter().all(|receipt| *receipt == receipts[0]), "{receipts:?}");
    assert_eq!((bank.payments().await?, bank.balance().await?), (1, "95.00".to_owned()));
    let other = bank.pay(&place, &order("same", "1")).await?;
    assert_eq!(other.unwrap_err(), "another payment was made with this key");

    let (tenant, agent) = (bank.world.tenant, bank.world.agent);
    let again = bank.work.receive(tenant, agent, ("first", "owner"), money("100")).await?;
    assert_eq!(again, money("95"));
    Ok(())
}

#[tokio::test]
async fn payments_at_a_time_keep_within_the_limit_of_the_day() -> anyhow::Result<()> {
    let bank = Bank::start().await?;
    let tasks: Vec<(Place, PaymentOrder)> =
        (0..20).map(|n| (bank.task(), order(&n.to_string(), "1.50"))).collect();

    let all = join_all(tasks.iter().map(|(place, order)| bank.pay(place, order))).await;

    let paid = all.into_iter().collect::<anyhow::Result<Vec<_>>>()?;
    assert_eq!(paid.iter().filter(|paid| paid.is_ok()).count(), 8);
    assert_eq!((bank.payments().await?, bank.balance().await?), (8, "88.00".to_owned()));
    Ok(())
}

/// A provider that refuses.
#[derive(Debug)]
struct Refusing;

impl WalletProvider for Refusing {
    fn name(&self) -> &'static str {
        "refusing"
    }

    fn pay<'a>(
        &'a self,
        _: &'a mut TenantTx,
        _: AgentId,
        _: Uuid,
        _: &'a PaymentOrder,
    ) -> ProviderFuture<'a> {
        Box::pin(async { Ok(Err("closed".to_owned())) })
    }
}

#[tokio::test]
async fn a_provider_that_refuses_and_a_small_balance_free_what_was_reserved() -> anyhow::Result<()>
{
    let bank = Bank::start().await?;
    let tenant = bank.world.tenant;
    let refused = bank.work.pay(tenant, &bank.task(), &Refusing, &order("k", "1")).await?;
    assert_eq!(refused, Err("closed".to_owned()));
    bank.world.admin("update work.wallets set balance = 999999").await?;
    let poor = bank.pay(&bank.task(), &order("k", "1")).await?;
    assert_eq!(poor, Err("the balance is too small".to_owned()));
    assert_eq!((bank.payments().await?, bank.balance().await?), (0, "0.999999".to_owned()));
    Ok(())
}

#[tokio::test]
async fn another_tenant_sees_no_wallet_and_pays_from_none() -> anyhow::Result<()> {
    let bank = Bank::start().await?;
    let other = TenantId::generate();
    bank.world.add_session(other, bank.world.list).await?;
    let agent = bank.world.agent;

    assert_eq!(bank.work.wallet(other, agent).await?, holdfast_work::Wallet::default());
    assert!(bank.work.payments(other, agent, 10).await?.is_empty());
    let paid = bank.work.pay(other, &bank.task(), &InternalCurrency, &order("k", "1")).await?;
    assert_eq!(paid, Err("this agent has no wallet".to_owned()));
    let failed = bank.work.receive(other, agent, ("k", "x"), money("1")).await;
    assert!(matches!(failed, Err(Error::Store(_))));
    assert_eq!(bank.balance().await?, "100.00");
    Ok(())
}
