//! Roles and reach of a service's login, by its name. `service_rights.sql` knows the same names.

/// Logins of single services.
const SERVICE_LOGINS: [&str; 5] = [
    "holdfast_gateway",
    "holdfast_runner",
    "holdfast_scheduler",
    "holdfast_memory",
    "holdfast_bridge",
];

/// Start of the login of runners of a pool; the pool's name follows.
const POOL_LOGIN_PREFIX: &str = "holdfast_runner_pool_";

/// Login of runners that work for the tenants without a pool.
const DEFAULT_POOL_LOGIN: &str = "holdfast_runner_default";

/// Tenants whose rows a login reaches.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LoginScope {
    AllTenants,
    /// The tenants of one pool of runners.
    Pool(String),
    /// The tenants without a pool.
    DefaultPool,
}

impl LoginScope {
    pub(crate) fn of_login(login: &str) -> Self {
        match login.strip_prefix(POOL_LOGIN_PREFIX) {
            Some(pool) => Self::Pool(pool.to_owned()),
            None if login == DEFAULT_POOL_LOGIN => Self::DefaultPool,
            None => Self::AllTenants,
        }
    }
}

/// Role that a connection takes: one of the login's own, or of those that serve all services. `kind`
/// is `app` or `system`.
pub(crate) fn role(login: &str, kind: &str) -> String {
    match LoginScope::of_login(login) {
        LoginScope::Pool(_) | LoginScope::DefaultPool => format!("holdfast_pool_{kind}"),
        LoginScope::AllTenants if SERVICE_LOGINS.contains(&login) => format!("{login}_{kind}"),
        LoginScope::AllTenants => format!("holdfast_{kind}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_login_takes_the_roles_that_its_name_says() {
        for (login, taken) in [
            ("holdfast", "holdfast_app"),
            ("postgres", "holdfast_app"),
            ("holdfast_runner", "holdfast_runner_app"),
            ("holdfast_runner_default", "holdfast_pool_app"),
            ("holdfast_runner_pool_acme-1", "holdfast_pool_app"),
        ] {
            assert_eq!(role(login, "app"), taken, "{login}");
        }
        let scope = LoginScope::of_login("holdfast_runner_pool_acme-1");
        assert_eq!(scope, LoginScope::Pool("acme-1".to_owned()));
        assert_eq!(LoginScope::of_login("holdfast_runner"), LoginScope::AllTenants);
    }
}
