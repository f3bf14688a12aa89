//! The calls as an OpenAPI 3.1 document, and as a page of the manual.

use serde_json::Value;
use std::fmt::Write as _;
use std::sync::LazyLock;
use utoipa::openapi::path::{OperationBuilder, ParameterIn, PathItem, Paths};
use utoipa::openapi::request_body::RequestBodyBuilder;
use utoipa::openapi::schema::ComponentsBuilder;
use utoipa::openapi::security::{HttpAuthScheme, HttpBuilder, SecurityRequirement, SecurityScheme};
use utoipa::openapi::tag::TagBuilder;
use utoipa::openapi::{
    Content, ContentBuilder, Header, HeaderBuilder, InfoBuilder, Object, OpenApi, OpenApiBuilder, Ref,
    Required, Response, ResponseBuilder,
};
use utoipa::{PartialSchema as _, ToSchema as _};

use super::call::{self, Call};
use super::{calls, shapes};
use crate::error::ErrorCode;
use crate::http::problem::{PROBLEM_TYPE, ProblemBody};

const BEARER: &str = "bearer";
const TAGS: [(&str, &str); 3] = [
    ("rooms", "Rooms, their settings and who is in them."),
    ("commands", "What a room's owner does for the app's back end, which may do what any host may."),
    ("callbacks", "What media servers say happened."),
];
const ABOUT: &str = "The HTTP API of Dais for the back ends of apps. Any instance takes any call. Refusals are RFC 9457 \
     problem documents whose `code` is one of the wire protocol's; those with `retryable` carry `retryAfterMs` \
     and `Retry-After`. A path that exists answers a method that it lacks with 405 and `Allow`.";

/// The document, as it is served.
pub fn document() -> &'static str {
    static DOCUMENT: LazyLock<String> = LazyLock::new(|| {
        build(calls()).to_json().unwrap_or_else(|error| {
            tracing::error!(error = &error as &dyn std::error::Error, "the document cannot be encoded");
            "{}".to_owned()
        })
    });
    &DOCUMENT
}

fn build(calls: Vec<Call>) -> OpenApi {
    let bearer = HttpBuilder::new()
        .scheme(HttpAuthScheme::Bearer)
        .description(Some("An API key of the app, or a token of the app with `admin`."))
        .build();
    let mut components = ComponentsBuilder::new()
        .security_scheme(BEARER, SecurityScheme::Http(bearer))
        .schema(ProblemBody::name(), ProblemBody::schema());
    let mut paths = Paths::new();
    for call in calls {
        let contents = call.body.iter().chain(call.answers.iter().map(|answer| &answer.content));
        for (name, schema) in contents.flat_map(|content| content.schemas.clone()) {
            components = components.schema(name, schema);
        }
        let item = PathItem::new(call.method.clone(), operation(&call));
        match paths.paths.get_mut(call.path) {
            Some(there) => there.merge_operations(item),
            None => _ = paths.paths.insert(call.path.to_owned(), item),
        }
    }
    let info = InfoBuilder::new().title("Dais").version(env!("CARGO_PKG_VERSION")).description(Some(ABOUT));
    let tags = TAGS.map(|(name, says)| TagBuilder::new().name(name).description(Some(says)).build());
    OpenApiBuilder::new()
        .info(info.build())
        .paths(paths)
        .components(Some(components.build()))
        .tags(Some(tags))
        .build()
}

fn operation(call: &Call) -> utoipa::openapi::path::Operation {
    let notes = (!call.notes.is_empty()).then_some(call.notes);
    let mut operation = OperationBuilder::new()
        .operation_id(Some(call.id))
        .tag(call.tag)
        .summary(Some(call.does))
        .description(notes)
        .parameters(Some(call.parameters.clone()));
    if call.authorized {
        operation = operation.security(SecurityRequirement::new(BEARER, Vec::<String>::new()));
    }
    if let Some(body) = &call.body {
        let required = if call.body_optional { Required::False } else { Required::True };
        let content = content(body);
        let request = call
            .body_types
            .iter()
            .fold(RequestBodyBuilder::new(), |request, kind| request.content(*kind, content.clone()));
        operation = operation.request_body(Some(request.required(Some(required)).build()));
        if call.authorized {
            operation = operation.response("415", problem(415, &[ErrorCode::BadRequest]));
        }
    }
    if call.switches {
        let switching = ResponseBuilder::new().description("It is a WebSocket from now on.").build();
        operation = operation.response("101", switching);
    }
    for answer in &call.answers {
        let mut response = ResponseBuilder::new()
            .description(answer.says)
            .content("application/json", content(&answer.content));
        if answer.tagged {
            response = response.header("ETag", header("The settings version.", shapes::text(3, 22, "")));
        }
        operation = operation.response(answer.status.to_string(), response.build());
    }
    for (status, codes) in &call.refusals {
        operation = operation.response(status.to_string(), problem(*status, codes));
    }
    operation.build()
}

fn content(of: &call::Content) -> Content {
    ContentBuilder::new().schema(Some(of.schema.clone())).example(Some(of.example.clone())).build()
}

fn header(says: &str, schema: Object) -> Header {
    HeaderBuilder::new().description(Some(says)).schema(Some(schema)).build()
}

fn problem(status: u16, codes: &[ErrorCode]) -> Response {
    let says: Vec<String> =
        codes.iter().map(|code| format!("`{}`: {}", code.as_str(), code.meaning())).collect();
    let content = ContentBuilder::new().schema(Some(Ref::from_schema_name(ProblemBody::name()))).build();
    let mut response = ResponseBuilder::new().description(says.join(". ")).content(PROBLEM_TYPE, content);
    if codes.iter().any(|code| code.is_retryable()) {
        let seconds = shapes::number(0, 86_400);
        response = response.header("Retry-After", header("When to try again, in seconds.", seconds));
    }
    if status == ErrorCode::Unauthenticated.status() {
        let challenge = shapes::text(1, 256, "");
        response = response.header("WWW-Authenticate", header("How to prove who one is.", challenge));
    }
    response.build()
}

/// Every call with an example of its request and its answer, as the manual holds them.
pub fn markdown() -> String {
    let mut out = String::new();
    let calls = calls();
    for (tag, says) in TAGS {
        _ = writeln!(out, "## {}{}\n\n{says}\n", tag[..1].to_uppercase(), &tag[1..]);
        for call in calls.iter().filter(|call| call.tag == tag) {
            describe(call, &mut out);
        }
    }
    out.truncate(out.trim_end().len() + 1);
    out
}

fn describe(call: &Call, out: &mut String) {
    let method = call.method_name();
    let says = format!("{} {}", call.does, call.notes);
    _ = write!(out, "### `{method} {}`\n\n{}\n", call.path, says.trim_end());
    let beside_path = call.parameters.iter().filter(|it| it.parameter_in != ParameterIn::Path);
    let parameters: String = beside_path
        .map(|it| format!("- `{}`: {}\n", it.name, it.description.as_deref().unwrap_or_default()))
        .collect();
    if !parameters.is_empty() {
        _ = write!(out, "\n{parameters}");
    }
    _ = writeln!(out, "\n```http\n{method} {} HTTP/1.1", call.example_path());
    out.push_str(call.proof);
    if let Some(body) = &call.body {
        _ = writeln!(out, "Content-Type: {}\n\n{}", call.body_types[0], pretty(&body.example));
    }
    out.push_str("```\n\n");
    if call.switches {
        out.push_str("```http\nHTTP/1.1 101\n```\n\n");
    }
    if let Some(answer) = call.answers.first() {
        let etag = answer.content.example.pointer("/version/settings").filter(|_| answer.tagged);
        let etag = etag.map(|sv| format!("ETag: \"{sv}\"\n")).unwrap_or_default();
        _ = writeln!(
            out,
            "```http\nHTTP/1.1 {}\n{etag}\n{}\n```\n",
            answer.status,
            pretty(&answer.content.example)
        );
    }
    for answer in call.answers.iter().skip(1) {
        _ = writeln!(out, "Or {}: {}\n", answer.status, answer.says);
    }
    let refusals: Vec<String> = call
        .refusals
        .iter()
        .flat_map(|(status, codes)| codes.iter().map(move |code| format!("{status} `{}`", code.as_str())))
        .collect();
    _ = writeln!(out, "Refused with: {}.\n", refusals.join(", "));
}

/// JSON with one member of the outermost object, or one item of the outermost list, on a line.
fn pretty(value: &Value) -> String {
    let lines = |open: char, close: char, parts: Vec<String>| {
        if parts.is_empty() {
            format!("{open}{close}")
        } else {
            format!("{open}\n  {}\n{close}", parts.join(",\n  "))
        }
    };
    match value {
        Value::Object(fields) => lines(
            '{',
            '}',
            fields.iter().map(|(name, value)| format!("{}: {value}", Value::from(name.as_str()))).collect(),
        ),
        Value::Array(items) => lines('[', ']', items.iter().map(Value::to_string).collect()),
        other => other.to_string(),
    }
}
