//! The service `Models`: model cards and aliases.

mod check;

use holdfast_directory::KnownModel;
use holdfast_llm::{Catalogue, ModelCard};
use holdfast_proto::gateway::v1::{
    self as pb, CheckModelsRequest, CheckModelsResponse, DeleteAliasRequest, DeleteAliasResponse,
    DeleteModelRequest, DeleteModelResponse, ListModelsRequest, ListModelsResponse,
    PutAliasRequest, PutAliasResponse, PutModelRequest, PutModelResponse,
    models_server::Models as Service,
};
use holdfast_types::{InvalidModelId, ModelId};
use jiff::Timestamp;
use tonic::{Request, Response, Status};

use super::{State, actor, invalid};
use crate::{Error, audit};

/// Implements `holdfast.gateway.v1.Models`.
#[derive(Debug)]
pub struct Models(pub State);

#[tonic::async_trait]
impl Service for Models {
    async fn list_models(
        &self,
        request: Request<ListModelsRequest>,
    ) -> Result<Response<ListModelsResponse>, Status> {
        let (caller, request) = holdfast_grpc::caller(request)?;

        let known = self.0.directory.models().known(caller.tenant).await.map_err(Error::from)?;

        let wanted = known.into_iter().filter(|model| model.is_own || !request.own);
        let models = wanted.map(model_of).collect();
        let (retired, suggested) = match request.own {
            true => (Vec::new(), Vec::new()),
            false => {
                (retired(), Catalogue::built_in().suggested().map(ToString::to_string).collect())
            }
        };
        Ok(Response::new(ListModelsResponse { models, retired, suggested }))
    }

    async fn check_models(
        &self,
        request: Request<CheckModelsRequest>,
    ) -> Result<Response<CheckModelsResponse>, Status> {
        let (caller, _) = holdfast_grpc::caller(request)?;
        let used = self.0.directory.models().uses(caller.tenant).await;
        let (catalogue, uses) = used.map_err(Error::from)?;

        let models = check::check(&self.0.provider_egress, &catalogue, uses).await;

        Ok(Response::new(CheckModelsResponse { models }))
    }

    async fn put_model(
        &self,
        request: Request<PutModelRequest>,
    ) -> Result<Response<PutModelResponse>, Status> {
        let (caller, request) = holdfast_grpc::caller(request)?;
        audit::set_target(&request.model);
        let (model, card) = (id(&request.model)?, card(&request.card)?);
        let (directory, by) = (&self.0.directory, actor(&caller));

        let put = directory.models().put(caller.tenant, by, &model, &card).await;

        put.map_err(Error::from)?;
        Ok(Response::new(PutModelResponse {}))
    }

    async fn delete_model(
        &self,
        request: Request<DeleteModelRequest>,
    ) -> Result<Response<DeleteModelResponse>, Status> {
        let (caller, request) = holdfast_grpc::caller(request)?;
        audit::set_target(&request.model);
        let (directory, by) = (&self.0.directory, actor(&caller));

        let deleted = directory.models().delete(caller.tenant, by, &request.model).await;

        deleted.map_err(Error::from)?;
        Ok(Response::new(DeleteModelResponse {}))
    }

    async fn put_alias(
        &self,
        request: Request<PutAliasRequest>,
    ) -> Result<Response<PutAliasResponse>, Status> {
        let (caller, request) = holdfast_grpc::caller(request)?;
        audit::set_target(&request.model);
        let (directory, by) = (&self.0.directory, actor(&caller));

        let put =
            directory.models().put_alias(caller.tenant, by, &request.alias, &request.model).await;

        let model = put.map_err(Error::from)?.to_string();
        Ok(Response::new(PutAliasResponse { model }))
    }

    async fn delete_alias(
        &self,
        request: Request<DeleteAliasRequest>,
    ) -> Result<Response<DeleteAliasResponse>, Status> {
        let (caller, request) = holdfast_grpc::caller(request)?;
        audit::set_target(&request.alias);
        let (directory, by) = (&self.0.directory, actor(&caller));

        let deleted = directory.models().delete_alias(caller.tenant, by, &request.alias).await;

        deleted.map_err(Error::from)?;
        Ok(Response::new(DeleteAliasResponse {}))
    }
}

/// Models that their vendors switch off, with the days.
fn retired() -> Vec<pb::RetiredModel> {
    let today = Timestamp::now().strftime("%F").to_string();
    let retired = Catalogue::built_in().all_retired().map(|(model, retired)| pb::RetiredModel {
        model: model.to_string(),
        on: retired.on.clone(),
        is_off: retired.is_off(&today),
        successor: retired.successor.to_string(),
    });
    retired.collect()
}

fn model_of(known: KnownModel) -> pb::KnownModel {
    pb::KnownModel {
        model: known.model.to_string(),
        // A card can always be serialized as JSON.
        card: serde_json::to_string(&known.card).unwrap_or_default(),
        aliases: known.aliases,
        is_own: known.is_own,
    }
}

fn id(model: &str) -> Result<ModelId, Error> {
    model.parse().map_err(|error: InvalidModelId| invalid(error.to_string()))
}

fn card(text: &str) -> Result<ModelCard, Error> {
    let text = if text.is_empty() { "{}" } else { text };
    serde_json::from_str(text).map_err(|error| {
        invalid(format!("`card` cannot be read ({error}): docs/models.md has its fields"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_card_does_not_say_is_as_for_a_model_that_nobody_knows() {
        assert_eq!(card("").unwrap(), ModelCard::default());
        assert_eq!(card(r#"{"context": 8192}"#).unwrap().context, 8_192);
        let error = card(r#"{"contxt": 1}"#).unwrap_err().to_string();
        assert!(error.contains("docs/models.md"), "{error}");
    }
}
