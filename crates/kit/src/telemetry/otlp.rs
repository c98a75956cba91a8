//! Where spans are sent: from the table `[telemetry]`, then from the variables that OpenTelemetry
//! defines.
//!
//! A setting of ours has precedence over a variable, and a variable for traces over the one for all
//! signals. Only `OTEL_SDK_DISABLED=true` and `OTEL_TRACES_EXPORTER=none` turn off what the settings
//! turn on. Sampling, attributes, batches and headers are read by the SDK.

use std::{str::FromStr, time::Duration};

use anyhow::{bail, ensure};

use super::Config;
use crate::config;

const DEFAULT_TIMEOUT: Duration = Duration::from_secs(10);

/// Values of `OTEL_TRACES_SAMPLER` that the SDK knows. It would replace another one by its default.
const SAMPLERS: [&str; 6] = [
    "always_on",
    "always_off",
    "traceidratio",
    "parentbased_always_on",
    "parentbased_always_off",
    "parentbased_traceidratio",
];

/// Collector of spans, which speaks OTLP over gRPC.
#[derive(Debug)]
pub(super) struct Otlp {
    pub endpoint: String,
    /// Setting or variable that gives the endpoint.
    pub origin: String,
    pub tls: config::Tls,
    /// Maximum duration of one request.
    pub timeout: Duration,
}

impl Otlp {
    /// Returns `None` if no spans are wanted. `variable` returns a variable that is not empty.
    ///
    /// # Errors
    ///
    /// If a variable is invalid; the error names it.
    pub fn choose(
        config: &Config,
        variable: impl Fn(&str) -> Option<String>,
    ) -> anyhow::Result<Option<Self>> {
        let is = |name: &str, value: &str| {
            variable(name).is_some_and(|given| given.eq_ignore_ascii_case(value))
        };
        if is("OTEL_SDK_DISABLED", "true") || is("OTEL_TRACES_EXPORTER", "none") {
            return Ok(None);
        }
        let of_traces = |rest: &str| {
            let names =
                [format!("OTEL_EXPORTER_OTLP_TRACES_{rest}"), format!("OTEL_EXPORTER_OTLP_{rest}")];
            names.into_iter().find_map(|name| Some((variable(&name)?, name)))
        };
        let (endpoint, origin) = match &config.otlp_endpoint {
            Some(endpoint) => (endpoint.clone(), "telemetry.otlp_endpoint".to_owned()),
            None => {
                let Some(chosen) = of_traces("ENDPOINT") else { return Ok(None) };
                check_protocol(of_traces("PROTOCOL"))?;
                chosen
            }
        };
        check_sampler(&variable)?;
        let path = |rest| of_traces(rest).map(|(path, _)| path.into());
        let tls = config::Tls {
            authorities: config.otlp_authorities.clone().or_else(|| path("CERTIFICATE")),
            certificate: path("CLIENT_CERTIFICATE"),
            private_key: path("CLIENT_KEY"),
            ..config::Tls::default()
        };
        let timeout = match of_traces("TIMEOUT") {
            Some((value, name)) => Duration::from_millis(number(&name, &value)?),
            None => DEFAULT_TIMEOUT,
        };
        Ok(Some(Self { endpoint, origin, tls, timeout }))
    }
}

fn check_protocol(protocol: Option<(String, String)>) -> anyhow::Result<()> {
    match protocol {
        Some((protocol, name)) if protocol != "grpc" => bail!(
            "`{name}` is `{protocol}`, and spans are sent by gRPC only: write `grpc`, and the \
             collector's port for it (usually 4317)"
        ),
        _ => Ok(()),
    }
}

fn check_sampler(variable: impl Fn(&str) -> Option<String>) -> anyhow::Result<()> {
    let Some(sampler) = variable("OTEL_TRACES_SAMPLER") else { return Ok(()) };
    ensure!(
        SAMPLERS.contains(&sampler.as_str()),
        "`OTEL_TRACES_SAMPLER` is `{sampler}`: write one of {}",
        SAMPLERS.join(", ")
    );
    if let (true, Some(ratio)) = (sampler.ends_with("ratio"), variable("OTEL_TRACES_SAMPLER_ARG")) {
        let ratio: f64 = number("OTEL_TRACES_SAMPLER_ARG", &ratio)?;
        ensure!(
            (0.0..=1.0).contains(&ratio),
            "`OTEL_TRACES_SAMPLER_ARG` is `{ratio}`: write a share from 0 to 1"
        );
    }
    Ok(())
}

fn number<T: FromStr>(name: &str, value: &str) -> anyhow::Result<T> {
    value.parse().map_err(|_| anyhow::anyhow!("`{name}` is `{value}`: write a number"))
}

/// Whether a variable gives the name of the service.
pub(super) fn names_service(variable: impl Fn(&str) -> Option<String>) -> bool {
    let attributes = variable("OTEL_RESOURCE_ATTRIBUTES").unwrap_or_default();
    let has_name =
        |pair: &str| pair.split('=').next().is_some_and(|key| key.trim() == "service.name");
    variable("OTEL_SERVICE_NAME").is_some_and(|name| !name.is_empty())
        || attributes.split(',').any(has_name)
}

#[cfg(test)]
mod tests {
    use super::*;

    const ENDPOINT: (&str, &str) = ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://all:4317");

    fn choose(config: &Config, vars: &[(&str, &str)]) -> anyhow::Result<Option<Otlp>> {
        let variable = |name: &str| {
            vars.iter().find(|(given, _)| *given == name).map(|(_, value)| (*value).to_owned())
        };
        Otlp::choose(config, variable)
    }

    #[test]
    fn a_setting_precedes_a_variable_for_traces_and_that_one_for_all_signals() {
        let traces = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "http://traces:4317");
        let unset = Config::default();
        let set = Config { otlp_endpoint: Some("http://own:4317".into()), ..Config::default() };
        let endpoint =
            |config: &Config, vars: &[_]| choose(config, vars).unwrap().map(|otlp| otlp.endpoint);

        assert_eq!(endpoint(&unset, &[]), None);
        assert_eq!(endpoint(&unset, &[ENDPOINT]).unwrap(), "http://all:4317");
        assert_eq!(endpoint(&unset, &[ENDPOINT, traces]).unwrap(), "http://traces:4317");
        assert_eq!(endpoint(&set, &[ENDPOINT, traces]).unwrap(), "http://own:4317");
        for off in [("OTEL_SDK_DISABLED", "TRUE"), ("OTEL_TRACES_EXPORTER", "none")] {
            assert_eq!(endpoint(&set, &[ENDPOINT, off]), None, "{off:?}");
        }
    }

    #[test]
    fn authorities_and_timeout_are_taken_from_variables() {
        let vars = [
            ENDPOINT,
            ("OTEL_EXPORTER_OTLP_CERTIFICATE", "/all.pem"),
            ("OTEL_EXPORTER_OTLP_TIMEOUT", "1500"),
        ];
        let set = Config { otlp_authorities: Some("/own.pem".into()), ..Config::default() };

        let otlp = choose(&Config::default(), &vars).unwrap().unwrap();
        assert_eq!(otlp.tls.authorities, Some("/all.pem".into()));
        assert_eq!(otlp.timeout, Duration::from_millis(1500));
        let otlp = choose(&set, &vars).unwrap().unwrap();
        assert_eq!(otlp.tls.authorities, Some("/own.pem".into()));
    }

    #[test]
    fn what_cannot_be_used_is_refused_with_the_variable_to_change() {
        for (name, value) in [
            ("OTEL_EXPORTER_OTLP_PROTOCOL", "http/protobuf"),
            ("OTEL_EXPORTER_OTLP_TIMEOUT", "10s"),
            ("OTEL_TRACES_SAMPLER", "xray"),
        ] {
            let refused = choose(&Config::default(), &[ENDPOINT, (name, value)]).unwrap_err();
            let refused = refused.to_string();
            assert!(refused.contains(&format!("`{name}` is `{value}`")), "{refused}");
        }
        let vars =
            [ENDPOINT, ("OTEL_TRACES_SAMPLER", "traceidratio"), ("OTEL_TRACES_SAMPLER_ARG", "2")];
        let refused = choose(&Config::default(), &vars).unwrap_err().to_string();
        assert!(refused.contains("`OTEL_TRACES_SAMPLER_ARG` is `2`"), "{refused}");
    }

    #[test]
    fn a_variable_may_give_the_name_of_the_service() {
        let names = |vars: &[(&str, &str)]| {
            names_service(|name| {
                vars.iter().find(|(given, _)| *given == name).map(|(_, value)| (*value).to_owned())
            })
        };

        assert!(!names(&[("OTEL_RESOURCE_ATTRIBUTES", "deployment.environment=prod")]));
        assert!(names(&[("OTEL_RESOURCE_ATTRIBUTES", "a=b, service.name = x")]));
        assert!(names(&[("OTEL_SERVICE_NAME", "x")]));
    }
}
