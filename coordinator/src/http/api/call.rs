//! One call of the API: how it is routed, and what its documentation says, in one value, so that neither is
//! ever without the other.

use axum::extract::DefaultBodyLimit;
use axum::handler::Handler;
use axum::routing::{MethodFilter, MethodRouter, on};
use serde_json::Value;
use std::collections::BTreeMap;
use std::sync::Arc;
use utoipa::ToSchema;
use utoipa::openapi::path::{HttpMethod, Parameter, ParameterBuilder, ParameterIn};
use utoipa::openapi::schema::Schema;
use utoipa::openapi::{Ref, RefOr, Required};

use super::shapes;
use crate::error::ErrorCode;
use crate::node::Node;

/// A schema under its name, with those that it refers to.
pub(super) type Schemas = Vec<(String, RefOr<Schema>)>;

/// What goes in or comes out, with an example.
#[derive(Clone)]
pub(super) struct Content {
    pub schema: RefOr<Schema>,
    pub schemas: Schemas,
    pub example: Value,
}

impl Content {
    fn of<T: ToSchema>(example: Value) -> Self {
        let mut schemas = vec![(T::name().into_owned(), T::schema())];
        T::schemas(&mut schemas);
        Self { schema: Ref::from_schema_name(T::name()).into(), schemas, example }
    }
}

/// A successful answer.
pub(super) struct Answer {
    pub status: u16,
    pub says: &'static str,
    pub content: Content,
    /// Whether it carries the settings version as `ETag`.
    pub tagged: bool,
}

/// A call.
pub(super) struct Call {
    pub method: HttpMethod,
    pub path: &'static str,
    /// Its `operationId`.
    pub id: &'static str,
    pub tag: &'static str,
    /// What it does, in a sentence.
    pub does: &'static str,
    /// What else is to be known.
    pub notes: &'static str,
    pub parameters: Vec<Parameter>,
    pub body: Option<Content>,
    /// Media types that the body may have.
    pub body_types: &'static [&'static str],
    /// Whether it may be left out.
    pub body_optional: bool,
    pub answers: Vec<Answer>,
    /// Codes that it may be refused with, by status.
    pub refusals: BTreeMap<u16, Vec<ErrorCode>>,
    /// Whether the caller is proved by `Authorization`.
    pub authorized: bool,
    /// Whether it becomes a WebSocket, answered with 101.
    pub switches: bool,
    /// The headers that prove the caller, as in the manual.
    pub proof: &'static str,
    route: MethodRouter<Arc<Node>>,
}

/// What any call may be refused with.
const ALWAYS: [ErrorCode; 2] = [ErrorCode::BadRequest, ErrorCode::Internal];

impl Call {
    /// A call that the app's back end makes.
    pub(super) fn new<H, T>(
        method: HttpMethod,
        path: &'static str,
        id: &'static str,
        does: &'static str,
        handler: H,
    ) -> Self
    where
        H: Handler<T, Arc<Node>>,
        T: 'static,
    {
        let filter = match method {
            HttpMethod::Put => MethodFilter::PUT,
            HttpMethod::Post => MethodFilter::POST,
            HttpMethod::Patch => MethodFilter::PATCH,
            _ => MethodFilter::GET,
        };
        let call = Self {
            method,
            path,
            id,
            tag: "rooms",
            does,
            notes: "",
            parameters: names(path),
            body: None,
            body_types: &["application/json"],
            body_optional: false,
            answers: Vec::new(),
            refusals: BTreeMap::new(),
            authorized: true,
            switches: false,
            proof: "Authorization: Bearer 0123456789abcdef01234567\n",
            route: on(filter, handler),
        };
        call.refuses(&ALWAYS).refuses(&[
            ErrorCode::Unauthenticated,
            ErrorCode::Forbidden,
            ErrorCode::StoreUnavailable,
        ])
    }

    /// It becomes a WebSocket.
    pub(super) const fn switching(mut self) -> Self {
        self.switches = true;
        self
    }

    /// It takes bodies up to another limit than the listener's.
    pub(super) fn limited(mut self, limit: DefaultBodyLimit) -> Self {
        self.route = self.route.layer(limit);
        self
    }

    /// Groups it in the documentation.
    pub(super) fn tagged(mut self, tag: &'static str) -> Self {
        self.tag = tag;
        self
    }

    /// Says more about it.
    pub(super) fn notes(mut self, notes: &'static str) -> Self {
        self.notes = notes;
        self
    }

    /// It proves its caller in another way, by these header lines.
    pub(super) fn proved_by(mut self, lines: &'static str) -> Self {
        self.authorized = false;
        self.proof = lines;
        self.refusals.remove(&ErrorCode::Forbidden.status());
        self
    }

    /// It has a parameter.
    pub(super) fn parameter(mut self, parameter: Parameter) -> Self {
        self.parameters.push(parameter);
        self
    }

    /// It takes a body.
    pub(super) fn takes<T: ToSchema>(mut self, example: Value) -> Self {
        let content = Content::of::<T>(example);
        self.body_optional = matches!(
            content.schemas.first(),
            Some((_, RefOr::T(Schema::Object(object)))) if object.required.is_empty() && object.min_properties.is_none()
        );
        self.body = Some(content);
        self.refuses(&[ErrorCode::PayloadTooLarge])
    }

    /// Its body refers to this schema as well.
    pub(super) fn including<T: ToSchema>(mut self) -> Self {
        if let Some(body) = &mut self.body {
            body.schemas.push((T::name().into_owned(), T::schema()));
        }
        self
    }

    /// Its body may have these media types.
    pub(super) fn in_types(mut self, types: &'static [&'static str]) -> Self {
        self.body_types = types;
        self
    }

    /// It answers so.
    pub(super) fn answers<T: ToSchema>(mut self, status: u16, says: &'static str, example: Value) -> Self {
        self.answers.push(Answer { status, says, content: Content::of::<T>(example), tagged: false });
        self
    }

    /// Its answers carry the settings version as `ETag`.
    pub(super) fn with_etag(mut self) -> Self {
        for answer in &mut self.answers {
            answer.tagged = true;
        }
        self
    }

    /// It may be refused with these codes.
    pub(super) fn refuses(mut self, codes: &[ErrorCode]) -> Self {
        for code in codes {
            self = self.refuses_as(code.status(), *code);
        }
        self
    }

    /// It may be refused with this code, under another status.
    pub(super) fn refuses_as(mut self, status: u16, code: ErrorCode) -> Self {
        let codes = self.refusals.entry(status).or_default();
        if !codes.contains(&code) {
            codes.push(code);
        }
        self
    }

    /// Where it is served.
    pub(super) fn route(self) -> (&'static str, MethodRouter<Arc<Node>>) {
        (self.path, self.route)
    }

    /// Its method's name.
    pub(super) fn method_name(&self) -> &'static str {
        match self.method {
            HttpMethod::Put => "PUT",
            HttpMethod::Post => "POST",
            HttpMethod::Patch => "PATCH",
            _ => "GET",
        }
    }

    /// Its path with the examples of its parameters.
    pub(super) fn example_path(&self) -> String {
        names_in(self.path)
            .fold(self.path.to_owned(), |path, name| path.replace(&format!("{{{name}}}"), example_of(name)))
    }
}

/// The parameters of a path.
fn names_in(path: &'static str) -> impl Iterator<Item = &'static str> {
    path.split('/').filter_map(|step| step.strip_prefix('{')?.strip_suffix('}'))
}

fn example_of(name: &str) -> &'static str {
    match name {
        "app" => "school",
        "room" => "maths-1",
        "event" => "41",
        _ => "ann",
    }
}

fn names(path: &'static str) -> Vec<Parameter> {
    let says = |name| match name {
        "app" => "Code of the app.",
        "room" => "Id of the room.",
        "event" => "Number of the event at its sink.",
        _ => "Id of the user.",
    };
    let parameter = |name: &'static str| {
        ParameterBuilder::new()
            .name(name)
            .parameter_in(ParameterIn::Path)
            .required(Required::True)
            .description(Some(says(name)))
            .schema(Some(if name == "event" { shapes::text(1, 19, "^[0-9]{1,18}$") } else { shapes::id() }))
            .example(Some(example_of(name).into()))
            .build()
    };
    names_in(path).map(parameter).collect()
}

/// A parameter of a query.
pub(super) fn query(name: &str, says: &str, schema: impl Into<RefOr<Schema>>) -> Parameter {
    optional(ParameterIn::Query, name, says, schema)
}

/// A header of a request.
pub(super) fn header(name: &str, says: &str, schema: impl Into<RefOr<Schema>>) -> Parameter {
    optional(ParameterIn::Header, name, says, schema)
}

fn optional(place: ParameterIn, name: &str, says: &str, schema: impl Into<RefOr<Schema>>) -> Parameter {
    ParameterBuilder::new()
        .name(name)
        .parameter_in(place)
        .required(Required::False)
        .description(Some(says))
        .schema(Some(schema))
        .build()
}

/// `If-Match`
pub(super) fn if_match() -> Parameter {
    header(
        "If-Match",
        "Only at this settings version, quoted as in an `ETag` or bare; `*` is any.",
        shapes::text(1, 64, r#"^(\*|[0-9]{1,19}|"[0-9]{1,19}")$"#),
    )
}

/// `Idempotency-Key`
pub(super) fn idempotency_key(says: &str) -> Parameter {
    header("Idempotency-Key", says, shapes::text(1, 64, "^[!-~]{1,64}$"))
}
