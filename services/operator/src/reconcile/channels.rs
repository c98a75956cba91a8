//! Channel accounts in the gateway.

use holdfast_proto::gateway::v1::{
    self as pb, CreateAccountRequest, DeleteAccountRequest, ListAccountsRequest,
    UpdateAccountRequest,
};

use super::{Observed, Reconciled, WriteOutcome};
use crate::{
    context::{Context, HasStore, SecretValue, Watched},
    error::Failure,
    gateway::answer,
    resources::{Channel, ChannelSpec},
};

impl HasStore for Channel {
    fn watched(context: &Context) -> &Watched<Self> {
        &context.channels
    }
}

impl Reconciled for Channel {
    async fn observe(&self, context: &Context) -> Result<Option<Observed>, Failure> {
        Ok(self.find(context).await?.map(|account| self.observed(account)))
    }

    async fn write(
        &self,
        context: &Context,
        observed: Option<&Observed>,
        secrets: &[SecretValue],
    ) -> Result<WriteOutcome, Failure> {
        let values = secrets.iter().map(|secret| secret.value.clone());
        let secrets = self.spec.secrets_json(values);
        let secrets =
            secrets.map_err(|problem| Failure::new("Refused", problem, "correct the resource"))?;
        let key = context.tenant_key(&self.spec.tenant).await?;
        let mut channels = context.gateway.channels();
        let id = observed.map(|observed| observed.id.clone());
        let account = self.spec.to_message(id.clone().unwrap_or_default(), self.gateway_name());
        let account = Some(account);
        let account = match id {
            None => {
                let request = key.request(CreateAccountRequest { account, secrets });
                answer(channels.create_account(request).await)?.account
            }
            Some(_) => {
                let request = key.request(UpdateAccountRequest { account, secrets });
                answer(channels.update_account(request).await)?.account
            }
        };
        let observed = self.observed(account.unwrap_or_default());
        Ok(WriteOutcome { observed, warnings: Vec::new() })
    }

    async fn remove(&self, context: &Context) -> Result<(), Failure> {
        let Some(account) = self.find(context).await? else { return Ok(()) };
        let key = context.tenant_key(&self.spec.tenant).await?;
        let request = key.request(DeleteAccountRequest { id: account.id });
        answer(context.gateway.channels().delete_account(request).await)?;
        Ok(())
    }
}

impl Channel {
    fn observed(&self, account: pb::Account) -> Observed {
        let id = account.id.clone();
        let state = ChannelSpec::from_message(account, &self.spec.tenant);
        Observed { id, state: serde_json::to_value(state).unwrap_or_default() }
    }

    async fn find(&self, context: &Context) -> Result<Option<pb::Account>, Failure> {
        let key = context.tenant_key(&self.spec.tenant).await?;
        let channel = self.spec.channel().to_owned();
        let request = key.request(ListAccountsRequest { channel });
        let listed = answer(context.gateway.channels().list_accounts(request).await)?;
        let name = self.gateway_name();
        Ok(listed.accounts.into_iter().find(|account| account.name == name))
    }
}
