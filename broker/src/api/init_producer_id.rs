//! InitProducerId (key 22, v0–v5).
//!
//! Gives idempotent producers (KIP-98) an id that nobody has had, with epoch 0; what id and epoch they had before (v3,
//! KIP-360) does not matter, but one without the other is INVALID_REQUEST. Transactions are not served so far: a
//! transactional id is refused with TRANSACTIONAL_ID_AUTHORIZATION_FAILED, one of the few codes that every client
//! takes as final, and a line in the log says why (case W17).

use protocol::wire::{InitProducerIdRequest, InitProducerIdResponse};
use protocol::{ErrorCode, StrBytes};

use crate::context::RequestContext;

/// Gives an id.
pub async fn handle(cx: &RequestContext, request: InitProducerIdRequest) -> InitProducerIdResponse {
    let mut answer = InitProducerIdResponse::default();
    answer.producer_id = -1;
    answer.producer_epoch = -1;
    match id(cx, &request).await {
        Ok(id) => {
            answer.producer_id = id;
            answer.producer_epoch = 0;
        }
        Err(error) => answer.error_code = error.code(),
    }
    answer
}

async fn id(cx: &RequestContext, request: &InitProducerIdRequest) -> Result<i64, ErrorCode> {
    if request.transactional_id.as_ref().is_some_and(StrBytes::is_empty) {
        return Err(ErrorCode::InvalidRequest);
    }
    if (request.producer_id == -1) != (request.producer_epoch == -1) {
        return Err(ErrorCode::InvalidRequest);
    }
    if let Some(transactional_id) = &request.transactional_id {
        tracing::warn!(
            client = ?cx.client_id,
            host = &*cx.client_host,
            transactional_id = ?&**transactional_id,
            "transactions are not served: the producer is refused, it can run without transactional.id"
        );
        return Err(ErrorCode::TransactionalIdAuthorizationFailed);
    }
    match cx.broker.catalog.producer_id().await {
        Ok(id) => Ok(id.0),
        Err(error) => {
            tracing::error!(%error, "no producer ids could be reserved");
            // As Kafka, while it has no block of ids: clients try again.
            Err(ErrorCode::CoordinatorLoadInProgress)
        }
    }
}
