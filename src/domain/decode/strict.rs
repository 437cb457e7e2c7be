//! Reads typed values from JSON values: a list is never read as a struct, and errors have their place.

use super::place::{Code, DecodeFault, PathStep, is_map};
use crate::visible::quote_names;
use serde::de::value::StringDeserializer;
use serde::de::{
    DeserializeSeed, Deserializer, EnumAccess, Error, Expected, IntoDeserializer, MapAccess, SeqAccess, Unexpected,
    VariantAccess, Visitor,
};
use serde::forward_to_deserialize_any;
use serde_json::{Map, Value, map};
use std::vec;

/// Deserializer of a value for any type.
pub(super) struct StrictValue(pub(super) Value);

fn unexpected_kind(value: &Value) -> Unexpected<'_> {
    match value {
        Value::Null => Unexpected::Unit,
        Value::Bool(yes) => Unexpected::Bool(*yes),
        Value::Number(number) => match (number.as_u64(), number.as_i64()) {
            (Some(number), _) => Unexpected::Unsigned(number),
            (None, Some(number)) => Unexpected::Signed(number),
            (None, None) => Unexpected::Float(number.as_f64().unwrap_or_default()),
        },
        Value::String(text) => Unexpected::Str(text),
        Value::Array(_) => Unexpected::Seq,
        Value::Object(_) => Unexpected::Map,
    }
}

fn visit_list<'de, V: Visitor<'de>>(items: Vec<Value>, visitor: V) -> Result<V::Value, DecodeFault> {
    let len = items.len();
    let mut items = StrictItems { rest: items.into_iter(), at: 0 };
    let made = visitor.visit_seq(&mut items)?;
    match items.rest.len() {
        0 => Ok(made),
        _ => Err(DecodeFault::new(Code::Type, format!("expected {} elements, got {len}", items.at))),
    }
}

/// Converts `8.0` to the whole number 8, as JSON Schema does.
fn whole_to_integer(value: Value) -> Value {
    let number = value.as_f64().filter(|number| value.is_f64() && number.fract() == 0.0);
    // A larger float has lost its last digits.
    match number.filter(|number| number.abs() < MOST_EXACT) {
        #[expect(clippy::cast_possible_truncation, reason = "it is whole and small enough")]
        Some(number) => Value::from(number as i64),
        None => value,
    }
}

/// Largest number up to which a float holds every whole number.
const MOST_EXACT: f64 = 9_007_199_254_740_992.0;

macro_rules! whole {
    ($($name:ident)*) => {$(
        fn $name<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, DecodeFault> {
            Self(whole_to_integer(self.0)).deserialize_any(visitor)
        }
    )*};
}

impl<'de> Deserializer<'de> for StrictValue {
    type Error = DecodeFault;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, DecodeFault> {
        match self.0 {
            Value::Null => visitor.visit_unit(),
            Value::Bool(yes) => visitor.visit_bool(yes),
            Value::Number(number) => match (number.as_u64(), number.as_i64()) {
                (Some(number), _) => visitor.visit_u64(number),
                (None, Some(number)) => visitor.visit_i64(number),
                (None, None) => visitor.visit_f64(number.as_f64().unwrap_or_default()),
            },
            Value::String(text) => visitor.visit_string(text),
            // Enums that are distinguished by a key would accept a list, too.
            Value::Array(_) if is_map(&(&visitor as &dyn Expected).to_string()) => {
                Err(DecodeFault::invalid_type(Unexpected::Seq, &visitor))
            }
            Value::Array(items) => visit_list(items, visitor),
            Value::Object(map) => visitor.visit_map(StrictEntries::new(map)),
        }
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, DecodeFault> {
        if self.0.is_null() { visitor.visit_none() } else { visitor.visit_some(self) }
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(self, _: &'static str, visitor: V) -> Result<V::Value, DecodeFault> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, DecodeFault> {
        match self.0 {
            Value::Object(map) => visitor.visit_map(StrictEntries::new(map)),
            other => Err(DecodeFault::expected_struct(&unexpected_kind(&other), fields)),
        }
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _: &'static str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, DecodeFault> {
        match self.0 {
            Value::String(name) => visitor.visit_enum(StrictVariant { name, content: None }),
            Value::Object(map) if map.len() == 1 => match map.into_iter().next() {
                Some((name, content)) => visitor.visit_enum(StrictVariant { name, content: Some(content) }),
                None => Err(DecodeFault::new(Code::Type, "expected one key, got none")),
            },
            other => {
                let known = quote_names(variants);
                let keys = other.as_object().map(|map| format!("a map of {} keys", map.len()));
                let got = keys.as_deref().map_or_else(|| unexpected_kind(&other), Unexpected::Other);
                Err(DecodeFault::expected_type(format!("one of {known}"), &got, Vec::new()))
            }
        }
    }

    fn deserialize_ignored_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, DecodeFault> {
        visitor.visit_unit()
    }

    whole! {
        deserialize_i8 deserialize_i16 deserialize_i32 deserialize_i64
        deserialize_u8 deserialize_u16 deserialize_u32 deserialize_u64
    }

    forward_to_deserialize_any! {
        bool i128 u128 f32 f64 char str string bytes byte_buf unit unit_struct seq
        tuple tuple_struct map identifier
    }
}

struct StrictItems {
    rest: vec::IntoIter<Value>,
    at: usize,
}

impl<'de> SeqAccess<'de> for &mut StrictItems {
    type Error = DecodeFault;

    fn next_element_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<Option<T::Value>, DecodeFault> {
        let Some(item) = self.rest.next() else { return Ok(None) };
        let at = self.at;
        self.at += 1;
        seed.deserialize(StrictValue(item)).map(Some).map_err(|fault| fault.under_step(PathStep::Index(at)))
    }

    fn size_hint(&self) -> Option<usize> {
        Some(self.rest.len())
    }
}

struct StrictEntries {
    rest: map::IntoIter,
    /// Value of the key that was returned last.
    value: Option<(String, Value)>,
}

impl StrictEntries {
    fn new(map: Map<String, Value>) -> Self {
        Self { rest: map.into_iter(), value: None }
    }
}

fn key_deserializer(text: String) -> StringDeserializer<DecodeFault> {
    text.into_deserializer()
}

impl<'de> MapAccess<'de> for StrictEntries {
    type Error = DecodeFault;

    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, seed: K) -> Result<Option<K::Value>, DecodeFault> {
        let Some((name, value)) = self.rest.next() else { return Ok(None) };
        let known = seed.deserialize(key_deserializer(name.clone()))?;
        self.value = Some((name, value));
        Ok(Some(known))
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value, DecodeFault> {
        let (name, value) =
            self.value.take().ok_or_else(|| DecodeFault::new(Code::Syntax, "a value without its key"))?;
        seed.deserialize(StrictValue(value)).map_err(|fault| fault.under_step(PathStep::Key(name)))
    }

    fn size_hint(&self) -> Option<usize> {
        Some(self.rest.len())
    }
}

struct StrictVariant {
    name: String,
    content: Option<Value>,
}

impl<'de> EnumAccess<'de> for StrictVariant {
    type Error = DecodeFault;
    type Variant = VariantContent;

    fn variant_seed<V: DeserializeSeed<'de>>(self, seed: V) -> Result<(V::Value, VariantContent), DecodeFault> {
        let variant = seed.deserialize(key_deserializer(self.name.clone()))?;
        Ok((variant, VariantContent { name: self.name, value: self.content }))
    }
}

struct VariantContent {
    name: String,
    value: Option<Value>,
}

impl<'de> VariantAccess<'de> for VariantContent {
    type Error = DecodeFault;

    fn unit_variant(self) -> Result<(), DecodeFault> {
        match self.value {
            None | Some(Value::Null) => Ok(()),
            Some(value) => Err(DecodeFault::expected_type("nothing".to_owned(), &unexpected_kind(&value), Vec::new())
                .under_step(PathStep::Key(self.name))),
        }
    }

    fn newtype_variant_seed<T: DeserializeSeed<'de>>(self, seed: T) -> Result<T::Value, DecodeFault> {
        let value = self.value.unwrap_or_default();
        seed.deserialize(StrictValue(value)).map_err(|fault| fault.under_step(PathStep::Key(self.name)))
    }

    fn tuple_variant<V: Visitor<'de>>(self, _: usize, visitor: V) -> Result<V::Value, DecodeFault> {
        let value = self.value.unwrap_or_default();
        StrictValue(value).deserialize_any(visitor).map_err(|fault| fault.under_step(PathStep::Key(self.name)))
    }

    fn struct_variant<V: Visitor<'de>>(
        self,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, DecodeFault> {
        let made = match self.value {
            Some(Value::Object(map)) => visitor.visit_map(StrictEntries::new(map)),
            Some(other) => Err(DecodeFault::expected_struct(&unexpected_kind(&other), fields)),
            None => Err(DecodeFault::expected_struct(&Unexpected::Other("nothing"), fields)),
        };
        made.map_err(|fault| fault.under_step(PathStep::Key(self.name)))
    }
}
