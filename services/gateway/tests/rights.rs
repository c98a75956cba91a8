//! The service may execute every statement that it contains. This program contains nothing else of
//! the product than the service.

use holdfast_testkit::{Database, statements};

use gateway::{App, Config};
use tokio_util::sync::CancellationToken;

async fn serve(config: Config) -> anyhow::Result<()> {
    let app = Box::pin(App::connect(config)).await?;
    Box::pin(app.run(CancellationToken::new())).await
}

#[tokio::test]
async fn every_statement_of_the_service_is_permitted_to_its_login() -> anyhow::Result<()> {
    // Never true. It links the service.
    if std::env::var_os("HOLDFAST_TEST_SERVE").is_some() {
        Box::pin(serve(Config::default())).await?;
    }
    let database = Database::create_from(&holdfast_pg::fingerprint(), async |url: String| {
        holdfast_pg::migrate(&url).await?;
        Ok(())
    })
    .await?;

    let checked = statements::check(&database.admin_url(), "holdfast_gateway").await?;

    assert!(checked.refused.is_empty(), "not permitted:\n{}", checked.refused.join("\n\n"));
    let (planned, others) = (checked.planned, checked.unplanned);
    assert!(planned > 200, "only {planned} statements were found");
    assert!(others.len() * 10 < planned, "not planned:\n{}", others.join("\n\n"));
    Ok(())
}
