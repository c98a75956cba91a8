//! `holdfast apply`: makes the tenant as a file describes it.

use std::env;

use clap::Args;
use holdfast_proto::gateway::v1::{
    Account, Agent, Binding, CreateAccountRequest, CreateAgentRequest, CreateBindingRequest,
    DeleteBindingRequest, DeleteIdentityRequest, GetAgentRequest, Identity, ListAccountsRequest,
    ListBehaviorsRequest, ListBindingsRequest, ListIdentitiesRequest, ListProvidersRequest,
    ListRulesRequest, Provider, PutBehaviorRequest, PutIdentityRequest, PutProviderRequest,
    PutRulesRequest, Rule, UpdateAccountRequest, UpdateAgentRequest, ValidateBehaviorRequest,
};
use operator::{
    BehaviorDocuments, Documents, IdentitySpec, ProviderSecrets, RoutingSpec, document_changes,
    own_documents,
};
use serde_json::{Value, json};

use super::super::{option_values, routing};
use crate::{client::Client, error::Error, screen::Screen};

const COLUMNS: [&str; 3] = ["kind", "name", "result"];

/// What is applied
#[derive(Debug, Args)]
pub struct Apply {
    /// File with the resources, as `holdfast export` prints them, and `-` for stdin
    #[arg(short, long)]
    file: String,
    /// Check the file and show what would be created or changed, without doing it
    #[arg(long)]
    dry_run: bool,
}

/// Calls the gateway for the documents of a file, and keeps what became of each.
struct Run<'a> {
    client: &'a Client,
    screen: &'a Screen,
    is_dry: bool,
    rows: Vec<Value>,
}

impl Apply {
    pub async fn run(self, client: &Client, screen: &Screen) -> Result<(), Error> {
        let path = if self.file == "-" { "-".to_owned() } else { format!("@{}", self.file) };
        let documents = Documents::parse(&option_values::text(&path)?, &|name| env::var(name).ok());
        let documents = documents
            .map_err(|error| Error::Usage(format!("`{}` cannot be applied: {error}", self.file)))?;
        let mut run = Run { client, screen, is_dry: self.dry_run, rows: Vec::new() };
        let outcome = run.apply(documents).await;
        // What was done is told, also if something failed after it.
        screen.list(&COLUMNS, run.rows)?;
        outcome
    }
}

impl Run<'_> {
    async fn apply(&mut self, documents: Documents) -> Result<(), Error> {
        let Documents { providers, agents, accounts, routing, .. } = documents;
        // In this order, since agents name models, and routing names agents.
        for (provider, secrets) in providers {
            self.provider(provider, secrets).await?;
        }
        for (agent, documents) in agents {
            self.agent(agent, documents).await?;
        }
        for (account, secrets) in accounts {
            self.account(account, secrets).await?;
        }
        match routing {
            Some(routing) => self.routing(routing).await,
            None => Ok(()),
        }
    }

    fn note<T: PartialEq>(
        &mut self,
        kind: &str,
        name: &str,
        before: Option<&T>,
        after: Option<&T>,
    ) {
        let result = match (before, after) {
            (None, None) => "to be created",
            (Some(_), None) => "to be compared",
            (None, Some(_)) => "created",
            (Some(before), Some(after)) if before == after => "unchanged",
            (Some(_), Some(_)) => "changed",
        };
        self.rows.push(json!({ "kind": kind, "name": name, "result": result }));
    }

    async fn provider(
        &mut self,
        provider: Provider,
        secrets: ProviderSecrets,
    ) -> Result<(), Error> {
        let client = self.client;
        let request = client.request(ListProvidersRequest {});
        let listed = client.answer(client.providers().list_providers(request).await)?.providers;
        let name = provider.name.clone();
        let before = listed.into_iter().find(|known| known.name == name);
        let after = if self.is_dry {
            None
        } else {
            let ProviderSecrets { api_key, headers } = secrets;
            let remove_headers = headers.is_empty();
            let provider = Some(provider);
            let request = PutProviderRequest { provider, api_key, headers, remove_headers };
            let put = client.providers().put_provider(client.request(request)).await;
            client.answer(put)?.provider
        };
        self.note("ModelProvider", &name, before.as_ref(), after.as_ref());
        Ok(())
    }

    async fn agent(
        &mut self,
        agent: Agent,
        documents: Option<BehaviorDocuments>,
    ) -> Result<(), Error> {
        let client = self.client;
        let name = agent.name.clone();
        let request = client.request(GetAgentRequest { agent: name.clone() });
        let found = match client.answer(client.agents().get_agent(request).await) {
            Ok(found) => found.agent,
            Err(error) if error.code() == 3 => None,
            Err(error) => return Err(error),
        };
        let without_facts = |agent: Agent| Agent {
            created_at: None,
            updated_at: None,
            state: String::new(),
            version: 0,
            ..agent
        };
        let before = found.map(without_facts);
        let after = match (&before, self.is_dry) {
            (_, true) => None,
            (None, false) => {
                let request = client.request(CreateAgentRequest { agent: Some(agent) });
                let made = client.answer(client.agents().create_agent(request).await)?;
                self.screen.warn(&made.warnings)?;
                made.agent
            }
            (Some(known), false) => {
                let is_default = agent.is_default || known.is_default;
                let agent = Agent {
                    id: known.id.clone(),
                    is_default,
                    // No fields of the resource: they stay as they are. An agent improves itself only
                    // by behaviours.
                    channels: known.channels.clone(),
                    self_improve: known.self_improve.filter(|_| agent.behaviors.is_some()),
                    ..agent
                };
                let request =
                    client.request(UpdateAgentRequest { agent: Some(agent), base_version: None });
                let changed = client.answer(client.agents().update_agent(request).await)?;
                self.screen.warn(&changed.warnings)?;
                changed.agent
            }
        };
        let known = match &documents {
            Some(wanted) if !self.is_dry => self.behaviors(&name, wanted).await?,
            Some(_) | None => BehaviorDocuments::default(),
        };
        let before = before.map(|agent| (agent, known));
        let after = after.map(|agent| (without_facts(agent), documents.unwrap_or_default()));
        self.note("Agent", &name, before.as_ref(), after.as_ref());
        Ok(())
    }

    /// Makes the agent's own behaviours the wanted ones. Returns those that it had.
    async fn behaviors(
        &self,
        agent: &str,
        wanted: &BehaviorDocuments,
    ) -> Result<BehaviorDocuments, Error> {
        let client = self.client;
        let request = client.request(ListBehaviorsRequest { agent: agent.to_owned() });
        let listed = client.answer(client.behaviors().list_behaviors(request).await)?;
        let known = own_documents(listed.behaviors);
        let (put, delete) = document_changes(agent, wanted, &known);
        for request in &put {
            let put = client.behaviors().put_behavior(client.request(request.clone())).await;
            client.answer(put)?;
        }
        for request in delete {
            client.answer(client.behaviors().delete_behavior(client.request(request)).await)?;
        }
        // Behaviours name each other, so that they are checked when all are there.
        for PutBehaviorRequest { agent, name, source, .. } in put {
            let request = ValidateBehaviorRequest { agent, name, source, ..Default::default() };
            let checked = client.behaviors().validate_behavior(client.request(request)).await;
            self.screen.warn(&client.answer(checked)?.warnings)?;
        }
        Ok(known)
    }

    async fn account(&mut self, account: Account, secrets: String) -> Result<(), Error> {
        let client = self.client;
        let request = client.request(ListAccountsRequest { channel: account.channel.clone() });
        let listed = client.answer(client.channels().list_accounts(request).await)?.accounts;
        let name = account.name.clone();
        let before = listed.into_iter().find(|known| known.name == name);
        let after = match (&before, self.is_dry) {
            (_, true) => None,
            (None, false) => {
                let request = CreateAccountRequest { account: Some(account), secrets };
                let made = client.channels().create_account(client.request(request)).await;
                client.answer(made)?.account
            }
            (Some(known), false) => {
                let account = Account { id: known.id.clone(), ..account };
                let request = UpdateAccountRequest { account: Some(account), secrets };
                let changed = client.channels().update_account(client.request(request)).await;
                client.answer(changed)?.account
            }
        };
        // A bridge sets the status, at any time.
        let without_status = |account: Account| Account { status: None, ..account };
        let (before, after) = (before.map(without_status), after.map(without_status));
        self.note("Channel", &name, before.as_ref(), after.as_ref());
        Ok(())
    }

    async fn routing(&mut self, routing: RoutingSpec) -> Result<(), Error> {
        let RoutingSpec { bindings, rules, identities } = routing;
        if let Some(bindings) = bindings {
            let bindings = bindings.into_iter().map(Value::Object).collect();
            self.bindings(routing::read_bindings(bindings)?).await?;
        }
        if let Some(rules) = rules {
            self.rules(routing::read_rules(&Value::Array(rules).to_string())?).await?;
        }
        match identities {
            Some(identities) => self.identities(identities).await,
            None => Ok(()),
        }
    }

    async fn bindings(&mut self, wanted: Vec<Binding>) -> Result<(), Error> {
        let client = self.client;
        let listed = client.routing().list_bindings(client.request(ListBindingsRequest {})).await;
        let known = client.answer(listed)?.bindings;
        // Names of agents and defaults are written in one form by the gateway.
        let place = |binding: &Binding| Binding { id: String::new(), ..binding.clone() };
        let mut after = Vec::new();
        if !self.is_dry {
            for binding in known.iter().filter(|known| !wanted.contains(&place(known))) {
                let request = client.request(DeleteBindingRequest { id: binding.id.clone() });
                client.answer(client.routing().delete_binding(request).await)?;
            }
            for binding in &wanted {
                if known.iter().any(|known| place(known) == *binding) {
                    after.push(binding.clone());
                    continue;
                }
                let request = CreateBindingRequest { binding: Some(binding.clone()) };
                let made = client.routing().create_binding(client.request(request)).await;
                after.push(place(&client.answer(made)?.binding.unwrap_or_default()));
            }
        }
        let by_place = |binding: &Binding| format!("{binding:?}");
        let mut before: Vec<Binding> = known.iter().map(place).collect();
        before.sort_by_key(by_place);
        after.sort_by_key(by_place);
        self.note("Routing", "bindings", Some(&before), Some(&after).filter(|_| !self.is_dry));
        Ok(())
    }

    async fn rules(&mut self, wanted: Vec<Rule>) -> Result<(), Error> {
        let client = self.client;
        let before = self.listed_rules().await?;
        if self.is_dry {
            self.note("Routing", "rules", Some(&before), None);
            return Ok(());
        }
        let request = client.request(PutRulesRequest { rules: wanted, base: String::new() });
        let put = client.answer(client.routing().put_rules(request).await)?;
        self.screen.warn(&put.warnings)?;
        let after = self.listed_rules().await?;
        self.note("Routing", "rules", Some(&before), Some(&after));
        Ok(())
    }

    async fn listed_rules(&self) -> Result<Vec<Rule>, Error> {
        let request = self.client.request(ListRulesRequest {});
        Ok(self.client.answer(self.client.routing().list_rules(request).await)?.rules)
    }

    async fn identities(&mut self, wanted: Vec<IdentitySpec>) -> Result<(), Error> {
        let before = self.listed_identities().await?;
        if self.is_dry {
            self.note("Routing", "identities", Some(&before), None);
            return Ok(());
        }
        let client = self.client;
        let is_wanted = |known: &Identity| {
            wanted.iter().any(|wanted| wanted.channel == known.channel && wanted.peer == known.peer)
        };
        for Identity { channel, peer, .. } in
            before.iter().filter(|known| !is_wanted(known)).cloned()
        {
            let request = client.request(DeleteIdentityRequest { channel, peer });
            client.answer(client.routing().delete_identity(request).await)?;
        }
        for IdentitySpec { channel, peer, canonical } in wanted {
            let identity = Some(Identity { channel, peer, canonical });
            let request = client.request(PutIdentityRequest { identity });
            client.answer(client.routing().put_identity(request).await)?;
        }
        let after = self.listed_identities().await?;
        self.note("Routing", "identities", Some(&before), Some(&after));
        Ok(())
    }

    async fn listed_identities(&self) -> Result<Vec<Identity>, Error> {
        let request = self.client.request(ListIdentitiesRequest {});
        let listed = self.client.routing().list_identities(request).await;
        Ok(self.client.answer(listed)?.identities)
    }
}
