//! Spans as a request of the OpenTelemetry protocol, in protobuf.

use super::names::SCHEMA;
use super::{SpanAttribute, SpanValue, TraceSpan, TraceSpanKind};
use crate::domain::trace::TraceParent;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::common::v1::{AnyValue, ArrayValue, InstrumentationScope, KeyValue};
use opentelemetry_proto::tonic::resource::v1::Resource;
use opentelemetry_proto::tonic::trace::v1::span::{Link, SpanKind};
use opentelemetry_proto::tonic::trace::v1::status::StatusCode;
use opentelemetry_proto::tonic::trace::v1::{ResourceSpans, ScopeSpans, Span, Status};
use prost::Message;

/// Name of the scope, and of the service if the configuration names none.
const SCOPE: &str = "trellis";
/// Bit of a span's flags: the traces of its parent and of this process are told apart.
const HAS_IS_REMOTE: u32 = 0x100;

/// The process that the spans are of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TracedService {
    /// Name of the service.
    pub name: String,
    /// Name of the process among those of the service.
    pub instance: String,
    /// Version of the program.
    pub version: &'static str,
}

/// Returns the body of a request with these spans.
pub fn encode(service: &TracedService, spans: impl IntoIterator<Item = TraceSpan>) -> Vec<u8> {
    let texts = [
        ("service.name", service.name.as_str()),
        ("service.instance.id", &service.instance),
        ("service.version", service.version),
    ];
    let attributes = texts.map(|(name, text)| key_value(name, Value::StringValue(text.to_owned())));
    let resource = Resource { attributes: attributes.into(), ..Resource::default() };
    let scope = InstrumentationScope {
        name: SCOPE.to_owned(),
        version: service.version.to_owned(),
        ..InstrumentationScope::default()
    };
    let spans = ScopeSpans {
        scope: Some(scope),
        spans: spans.into_iter().map(message).collect(),
        schema_url: SCHEMA.to_owned(),
    };
    let of_process = ResourceSpans { resource: Some(resource), scope_spans: vec![spans], schema_url: String::new() };
    ExportTraceServiceRequest { resource_spans: vec![of_process] }.encode_to_vec()
}

fn message(span: TraceSpan) -> Span {
    let TraceSpan { place, parent, links, name, kind, start, end, attributes, error } = span;
    let kind = match kind {
        TraceSpanKind::Internal => SpanKind::Internal,
        TraceSpanKind::Client => SpanKind::Client,
        TraceSpanKind::Producer => SpanKind::Producer,
        TraceSpanKind::Consumer => SpanKind::Consumer,
    };
    let status = error.map(|message| Status { message, code: StatusCode::Error.into() });
    Span {
        trace_id: place.trace_id().to_be_bytes().to_vec(),
        span_id: place.span_id().to_be_bytes().to_vec(),
        parent_span_id: parent.map(|id| id.to_be_bytes().to_vec()).unwrap_or_default(),
        flags: HAS_IS_REMOTE | 1,
        name,
        kind: kind.into(),
        start_time_unix_nano: start,
        end_time_unix_nano: end,
        attributes: attributes.into_iter().map(attribute).collect(),
        links: links.into_iter().map(link).collect(),
        status,
        ..Span::default()
    }
}

fn link(place: TraceParent) -> Link {
    Link {
        trace_id: place.trace_id().to_be_bytes().to_vec(),
        span_id: place.span_id().to_be_bytes().to_vec(),
        flags: u32::from(place.is_sampled()),
        ..Link::default()
    }
}

fn attribute(attribute: SpanAttribute) -> KeyValue {
    let text = |text| AnyValue { value: Some(Value::StringValue(text)) };
    let value = match attribute.value {
        SpanValue::Text(text) => Value::StringValue(text),
        SpanValue::Number(number) => Value::IntValue(number),
        SpanValue::Texts(texts) => Value::ArrayValue(ArrayValue { values: texts.into_iter().map(text).collect() }),
    };
    key_value(attribute.name, value)
}

fn key_value(name: &str, value: Value) -> KeyValue {
    KeyValue { key: name.to_owned(), value: Some(AnyValue { value: Some(value) }), ..KeyValue::default() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_are_encoded_with_ids_links_and_status() {
        let place = TraceParent::new(1, 2, true).unwrap();
        let mut span = TraceSpan::new(place, Some(3), "chat m", TraceSpanKind::Client);
        span.links = vec![TraceParent::new(4, 5, false).unwrap()];
        span.attributes = vec![SpanAttribute::new("a", "b"), SpanAttribute::new("n", 9_u64)];
        span.error = Some("timeout".to_owned());
        let service = TracedService { name: "s".into(), instance: "i".into(), version: "0" };
        let body = encode(&service, [span]);
        let read = ExportTraceServiceRequest::decode(body.as_slice()).unwrap();
        let [resource] = &read.resource_spans[..] else { panic!("{read:?}") };
        assert_eq!(resource.resource.as_ref().unwrap().attributes.len(), 3);
        let [sent] = &resource.scope_spans[0].spans[..] else { panic!("{read:?}") };
        assert_eq!((sent.trace_id[15], sent.span_id[7], sent.parent_span_id[7]), (1, 2, 3));
        assert_eq!((sent.links[0].trace_id[15], sent.links[0].span_id[7]), (4, 5));
        assert_eq!(sent.kind, i32::from(SpanKind::Client));
        let status = sent.status.as_ref().unwrap();
        assert_eq!((status.code, status.message.as_str()), (i32::from(StatusCode::Error), "timeout"));
        assert_eq!(sent.attributes[1].value, Some(AnyValue { value: Some(Value::IntValue(9)) }));
    }
}
