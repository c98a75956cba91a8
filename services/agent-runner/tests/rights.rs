//! The service may execute every statement that it contains. This program contains nothing else of
//! the product than the service.

use holdfast_testkit::{Database, statements};

use agent_runner::{App, Config};
use tokio_util::sync::CancellationToken;

async fn serve() -> anyhow::Result<()> {
    let app = Box::pin(App::connect(Config::default())).await?;
    Box::pin(app.run(CancellationToken::new())).await
}

#[tokio::test]
async fn every_statement_of_the_service_is_permitted_to_its_login() -> anyhow::Result<()> {
    // Never true. It links the service.
    if std::env::var_os("HOLDFAST_TEST_SERVE").is_some() {
        serve().await?;
    }
    let database = Database::create_from(&holdfast_pg::fingerprint(), async |url: String| {
        holdfast_pg::migrate(&url).await?;
        Ok(())
    })
    .await?;

    let checked = statements::check(&database.admin_url(), "holdfast_runner").await?;

    assert!(checked.refused.is_empty(), "not permitted:\n{}", checked.refused.join("\n\n"));
    let (planned, others) = (checked.planned, checked.unplanned);
    assert!(planned > 200, "only {planned} statements were found");
    assert!(others.len() * 10 < planned, "not planned:\n{}", others.join("\n\n"));
    // The deletion of a tenant names its tables while it runs.
    let is_unused = |right: &&String| right.contains(" control.") && !right.contains(": delete ");
    let unused: Vec<&String> = checked.unused.iter().filter(is_unused).collect();
    // A trigger counts the versions of an agent's definition up.
    assert_eq!(unused, ["app: update control.agents"], "rights that nothing needs");
    // The roles of the logins of pools have the same rights.
    let of_pool = statements::check(&database.admin_url(), "holdfast_pool").await?;
    assert!(of_pool.refused.is_empty(), "not permitted:\n{}", of_pool.refused.join("\n\n"));
    assert_eq!(of_pool.planned, planned);
    Ok(())
}
