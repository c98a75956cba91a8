//! Preparation of `up`: everything that must exist before the services start, and their settings.

use std::{collections::BTreeMap, fs, net::SocketAddr};

use anyhow::{Context as _, ensure};
use holdfast_kit::config::{self, variable};
use serde::{Deserialize, Serialize};

use super::UpArgs;
use crate::{
    backends::{self, Backends},
    bootstrap,
    ports::{Ports, Reservation},
    screen::{Screen, progress},
    secret::{self, SecretFiles},
    service::{self, Service as _},
    state_dir::{Gateway, Http, State, StateDir, write_private},
};

/// Services to run, and their settings.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Plan {
    pub split: bool,
    pub workers: u8,
    pub ports: Ports,
    /// Settings of all services as environment variables, on top of the environment.
    pub vars: BTreeMap<String, String>,
    /// By the name of a service: settings that no other service is told.
    pub own_vars: BTreeMap<String, BTreeMap<String, String>>,
    pub key: String,
    pub model: Option<String>,
}

impl Plan {
    /// Starts the backends, migrates the schema, and creates secrets, tenant and key. Keep the
    /// reservation of the ports until the services listen there.
    pub async fn make(
        args: &UpArgs,
        home: &StateDir,
        screen: Screen,
    ) -> anyhow::Result<(Self, Reservation)> {
        progress::begin("starting Postgres, NATS and Redis");
        let backends = Backends::get(home).await?;
        let mut secrets = secret::ensure(home, bootstrap::is_set)?;
        let mut vars = BTreeMap::new();
        if let Some(file) = &args.config {
            // Each service reads it, wherever it is started.
            let file = std::path::absolute(file)?;
            vars.insert("HOLDFAST_CONFIG".to_owned(), file.to_string_lossy().into_owned());
        }
        vars.insert(backends::DATABASE.to_owned(), backends.database);
        vars.insert(backends::NATS.to_owned(), backends.nats);
        vars.insert(backends::REDIS.to_owned(), backends.redis);

        let scratch = variable("runner.scratch.dir");
        if !bootstrap::is_set(&scratch) {
            vars.insert(scratch, home.scratch().to_string_lossy().into_owned());
        }
        let embedder = variable("memory.embedding.dir");
        if !bootstrap::is_set(&embedder) {
            vars.insert(embedder, home.embedder().to_string_lossy().into_owned());
        }

        let operator: BTreeMap<String, String> =
            vars.clone().into_iter().chain(secrets.operator.clone()).collect();
        let config = bootstrap::load(with_environment(&operator).into_iter().collect())?;
        let gateway: gateway::Config =
            config::load_from(service::Gateway::TABLE, with_environment(&operator))?;
        ensure!(
            gateway.tls.certificate.is_none(),
            "`tls.certificate` is set, and `holdfast up` serves plain text on loopback: unset it, or \
             start each service by its own command"
        );
        let runner: agent_runner::Config =
            config::load_from(service::AgentRunner::TABLE, with_environment(&operator))?;
        progress::begin("bringing the database up to date");
        match &backends.admin {
            Some(admin) => {
                bootstrap::migrate_schema(admin).await?;
            }
            None => bootstrap::check_schema(&config).await?,
        }
        progress::begin("setting up the tenant");
        let allows_local_providers = config.egress.local_providers;
        let opened =
            Box::pin(bootstrap::set_up_tenant(config, home, bootstrap::DEV_TENANT)).await?;

        if allows_local_providers.is_none() && !runner.runner.sandbox.hosted {
            vars.insert(variable("egress.local_providers"), true.to_string());
        }

        let (ports, reservation) = Ports::choose(args.port_base, args.gateways, args.runners)?;
        if args.port_base != 0 && ports.gateways[0].0.port() != args.port_base {
            screen
                .note(&format!("port {} is taken, so the next free ones are used", args.port_base))
                .map_err(anyhow::Error::from)?;
        }
        vars.insert(variable("mesh.gateway_url"), url(ports.gateways[0].1));
        vars.insert(variable("mesh.memory_url"), url(ports.memory));
        if args.split {
            vars.insert(variable("mesh.secrets_url"), url(ports.secrets));
            secrets.give_kek_to_secrets_service_only();
        } else {
            // In one process each service has the key itself.
            secrets.services.remove(service::Secrets::NAME);
        }
        give_logins(&mut secrets, &mut vars, backends.of_services);
        let plan = Self {
            split: args.split,
            workers: args.workers,
            ports,
            vars,
            own_vars: secrets.services,
            key: opened.key,
            model: opened.model,
        };
        write_private(&home.plan_file(), &serde_json::to_string_pretty(&plan)?)?;
        plan.write_environments(home, secrets.operator, backends.admin)?;
        Ok((plan, reservation))
    }

    /// Reads the plan of another process.
    pub fn read(home: &StateDir) -> anyhow::Result<Self> {
        let path = home.plan_file();
        let text = fs::read_to_string(&path)
            .with_context(|| format!("cannot read `{}`: run `holdfast up`", path.display()))?;
        serde_json::from_str(&text).with_context(|| format!("`{}` is damaged", path.display()))
    }

    /// Writes shell scripts with the variables of the operator's commands and of each service.
    fn write_environments(
        &self,
        home: &StateDir,
        operator: BTreeMap<String, String>,
        admin: Option<String>,
    ) -> anyhow::Result<()> {
        let admin = admin.map(|admin| (backends::ADMIN.to_owned(), admin));
        let vars = self.vars.clone().into_iter().chain(operator).chain(admin).collect();
        let usage = "commands of the operator are told:\n#   . .holdfast/env; holdfast migrate";
        write_private(&home.env_file(), &shell(usage, &vars))?;
        for (service, own) in &self.own_vars {
            let vars = self.vars.clone().into_iter().chain(own.clone()).collect();
            let usage = format!(
                "`{service}` of this `holdfast up` is told. To start one more by hand, with a listen \
                 address of its own:\n#   . .holdfast/env.{service}; holdfast {service}"
            );
            let path = home.env_file().with_extension(service);
            write_private(&path, &shell(&usage, &vars))?;
        }
        Ok(())
    }

    /// Returns all variables of one service: the environment, this plan, and its own addresses.
    pub fn vars_with(&self, service: &str, own: &[(&str, SocketAddr)]) -> BTreeMap<String, String> {
        let mut vars = with_environment(&self.vars);
        vars.extend(self.own_vars.get(service).cloned().unwrap_or_default());
        vars.extend(own.iter().map(|(setting, at)| (variable(setting), at.to_string())));
        vars
    }

    /// Returns the content of `state.json` for process `pid`.
    pub fn state(&self, pid: u32) -> State {
        let gateway = |(http, grpc): &(SocketAddr, SocketAddr)| Gateway {
            http: url(*http),
            grpc: url(*grpc),
        };
        State {
            pid,
            split: self.split,
            gateway: gateway(&self.ports.gateways[0]),
            gateways: self.ports.gateways.iter().map(gateway).collect(),
            runners: self.ports.runners.iter().map(|at| Http { http: url(*at) }).collect(),
            bridge: Http { http: url(self.ports.bridge) },
            scheduler: Http { http: url(self.ports.scheduler) },
            memory: Http { http: url(self.ports.memory) },
            secrets: self.split.then(|| Http { http: url(self.ports.secrets) }),
            key: self.key.clone(),
            model: self.model.clone(),
        }
    }

    /// Returns the addresses of all readiness endpoints.
    pub fn readiness_addresses(&self) -> Vec<SocketAddr> {
        let gateways = self.ports.gateways.iter().map(|(http, _)| *http);
        let others = [self.ports.bridge, self.ports.scheduler, self.ports.memory];
        let secrets = self.split.then_some(self.ports.secrets);
        gateways.chain(self.ports.runners.iter().copied()).chain(others).chain(secrets).collect()
    }
}

/// Gives each service its own logins of the backends. Logins with the rights of all services are for
/// the operator only.
fn give_logins(
    secrets: &mut SecretFiles,
    vars: &mut BTreeMap<String, String>,
    of_services: BTreeMap<String, BTreeMap<String, String>>,
) {
    for (service, urls) in of_services {
        for variable in urls.keys() {
            secrets.operator.extend(vars.remove_entry(variable));
        }
        secrets.services.entry(service).or_default().extend(urls);
    }
}

fn url(at: SocketAddr) -> String {
    format!("http://{at}")
}

/// Returns the environment, overridden by the given variables.
fn with_environment(vars: &BTreeMap<String, String>) -> BTreeMap<String, String> {
    let mut all: BTreeMap<String, String> = bootstrap::environment().into_iter().collect();
    all.extend(vars.clone());
    all
}

/// Returns the variables as a shell script.
fn shell(usage: &str, vars: &BTreeMap<String, String>) -> String {
    let mut lines = format!("# What {usage}\n");
    for (name, value) in vars {
        lines.push_str(&format!("export {name}='{}'\n", value.replace('\'', r"'\''")));
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan() -> Plan {
        Plan {
            split: true,
            workers: 2,
            ports: Ports::choose(0, 2, 1).unwrap().0,
            vars: BTreeMap::from([("HOLDFAST_NATS__URL".to_owned(), "nats://h".to_owned())]),
            own_vars: BTreeMap::from([(
                "agent-runner".to_owned(),
                BTreeMap::from([("HOLDFAST_MESH__KEY".to_owned(), "its own".to_owned())]),
            )]),
            key: "hf_1_2".to_owned(),
            model: None,
        }
    }

    #[test]
    fn a_service_is_told_its_own_settings_and_those_of_all() {
        let plan = plan();
        let at = plan.ports.runners[0];

        let vars = plan.vars_with("agent-runner", &[("runner.listen", at)]);

        assert_eq!(vars["HOLDFAST_RUNNER__LISTEN"], at.to_string());
        assert_eq!(vars["HOLDFAST_NATS__URL"], "nats://h");
        assert_eq!(vars["HOLDFAST_MESH__KEY"], "its own");
        assert!(!plan.vars_with("gateway", &[]).contains_key("HOLDFAST_MESH__KEY"));
        assert!(vars.contains_key("PATH"));
    }

    #[test]
    fn a_service_is_told_its_own_login_and_none_that_may_do_everything() {
        let variable = "HOLDFAST_NATS__URL".to_owned();
        let login = |url: &str| BTreeMap::from([(variable.clone(), url.to_owned())]);
        let mut secrets = SecretFiles::default();
        let mut vars = login("nats://holdfast:all@h");

        let own = login("nats://holdfast_gateway:g@h");
        give_logins(&mut secrets, &mut vars, BTreeMap::from([("gateway".to_owned(), own.clone())]));

        assert!(vars.is_empty());
        assert_eq!(secrets.operator, login("nats://holdfast:all@h"));
        assert_eq!(secrets.services, BTreeMap::from([("gateway".to_owned(), own)]));
    }

    #[test]
    fn the_state_has_what_programs_read() {
        let plan = plan();

        let state = serde_json::to_value(plan.state(7)).unwrap();

        let http = format!("http://{}", plan.ports.gateways[0].0);
        assert_eq!(state["gateway"]["http"], http.as_str());
        assert_eq!(state["gateways"].as_array().unwrap().len(), 2);
        assert_eq!(state["runners"][0]["http"], url(plan.ports.runners[0]).as_str());
        assert!(state["bridge"]["http"].is_string() && state["key"] == "hf_1_2");
        assert!(state["scheduler"]["http"].is_string());
        assert_eq!(plan.readiness_addresses().len(), 7);
        assert_eq!(state["secrets"]["http"], url(plan.ports.secrets).as_str());
    }

    #[test]
    fn a_shell_reads_back_any_value() {
        let vars = BTreeMap::from([("A".to_owned(), "it's $HOME".to_owned())]);

        assert!(shell("is told", &vars).ends_with("export A='it'\\''s $HOME'\n"));
    }
}
