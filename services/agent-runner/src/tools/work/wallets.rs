//! The wallet as the tool `wallet` sees it.
//!
//! A payment of a subagent is limited by what its agent's wallet gives each subagent.

use std::sync::Arc;

use holdfast_session::Sessions;
use holdfast_tools::{Call, WalletPayment, Wallets};
use holdfast_types::SessionKind;
use holdfast_work::{PaymentOrder, WalletProvider, Work};

use super::todos;
use crate::tools::tool_context::ToolContext;

#[derive(Debug)]
pub(crate) struct AgentWallets {
    pub(crate) work: Work,
    pub(crate) sessions: Sessions,
    pub(crate) provider: Arc<dyn WalletProvider>,
}

impl Wallets for AgentWallets {
    async fn wallet_text(&self, call: &Call) -> anyhow::Result<String> {
        let wallet = self.work.wallet(call.tenant, call.agent).await?;
        let rules = wallet.rules;
        if !rules.is_authorized {
            return Ok("Nobody has authorised you to spend.".to_owned());
        }
        let payees = match rules.payees.as_slice() {
            [] => "nobody".to_owned(),
            payees => payees.join(", "),
        };
        Ok(format!(
            "Balance: {}. Limits: {} for a payment, {} in a day, {} for a task, {} for each \
             subagent. You may pay: {payees}.",
            wallet.balance, rules.per_payment, rules.per_day, rules.per_task, rules.per_subagent
        ))
    }

    async fn pay(
        &self,
        call: &Call,
        payment: WalletPayment,
    ) -> anyhow::Result<Result<String, String>> {
        let list = self.sessions.root_of(call.tenant, call.session).await?;
        let place = todos::place(call, list)?;
        let WalletPayment { payee, amount, purpose, alternatives, expected_saving, risk } = payment;
        let order = PaymentOrder {
            key: format!("call:{}", call.key),
            payee,
            amount,
            purpose,
            alternatives,
            expected_saving,
            risk,
            by_subagent: ToolContext::of(call)?.kind == SessionKind::Subagent,
        };
        let paid = self.work.pay(call.tenant, &place, self.provider.as_ref(), &order).await?;
        Ok(paid.map(|receipt| {
            format!(
                "Paid {amount} to {}. Receipt: {}. Balance: {}.",
                order.payee, receipt.receipt, receipt.balance
            )
        }))
    }
}
