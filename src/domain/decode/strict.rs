//! Reads typed values from JSON values: a list is never read as a struct, and errors have their place.

use super::place::{Code, Fault, Step, is_map};
use serde::de::value::StringDeserializer;
use serde::de::{
    DeserializeSeed, Deserializer, EnumAccess, Error, Expected, IntoDeserializer, MapAccess, SeqAccess, Unexpected,
    VariantAccess, Visitor,
};
use serde::forward_to_deserialize_any;
use serde_json::{Map, Value, map};
use std::vec;

/// Deserializer of a value for any type.
pub(super) struct Strict(pub(super) Value);

fn found(value: &Value) -> Unexpected<'_> {
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

fn list<'de, V: Visitor<'de>>(items: Vec<Value>, visitor: V) -> Result<V::Value, Fault> {
    let len = items.len();
    let mut items = Items { rest: items.into_iter(), at: 0 };
    let made = visitor.visit_seq(&mut items)?;
    match items.rest.len() {
        0 => Ok(made),
        _ => Err(Fault::new(Code::Type, format!("expected {} elements, got {len}", items.at))),
    }
}

/// Converts `8.0` to the whole number 8, as JSON Schema does.
fn whole(value: Value) -> Value {
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
        fn $name<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fault> {
            Self(whole(self.0)).deserialize_any(visitor)
        }
    )*};
}

impl<'de> Deserializer<'de> for Strict {
    type Error = Fault;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fault> {
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
                Err(Fault::invalid_type(Unexpected::Seq, &visitor))
            }
            Value::Array(items) => list(items, visitor),
            Value::Object(map) => visitor.visit_map(Entries::of(map)),
        }
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fault> {
        if self.0.is_null() { visitor.visit_none() } else { visitor.visit_some(self) }
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(self, _: &'static str, visitor: V) -> Result<V::Value, Fault> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Fault> {
        match self.0 {
            Value::Object(map) => visitor.visit_map(Entries::of(map)),
            other => Err(Fault::no_struct(&found(&other), fields)),
        }
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _: &'static str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Fault> {
        match self.0 {
            Value::String(name) => visitor.visit_enum(Variant { name, content: None }),
            Value::Object(map) if map.len() == 1 => match map.into_iter().next() {
                Some((name, content)) => visitor.visit_enum(Variant { name, content: Some(content) }),
                None => Err(Fault::new(Code::Type, "expected one key, got none")),
            },
            other => {
                let known = variants.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ");
                let keys = other.as_object().map(|map| format!("a map of {} keys", map.len()));
                let got = keys.as_deref().map_or_else(|| found(&other), Unexpected::Other);
                Err(Fault::expected(format!("one of {known}"), &got, Vec::new()))
            }
        }
    }

    fn deserialize_ignored_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fault> {
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

struct Items {
    rest: vec::IntoIter<Value>,
    at: usize,
}

impl<'de> SeqAccess<'de> for &mut Items {
    type Error = Fault;

    fn next_element_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<Option<T::Value>, Fault> {
        let Some(item) = self.rest.next() else { return Ok(None) };
        let at = self.at;
        self.at += 1;
        seed.deserialize(Strict(item)).map(Some).map_err(|fault| fault.under(Step::Index(at)))
    }

    fn size_hint(&self) -> Option<usize> {
        Some(self.rest.len())
    }
}

struct Entries {
    rest: map::IntoIter,
    /// Value of the key that was returned last.
    value: Option<(String, Value)>,
}

impl Entries {
    fn of(map: Map<String, Value>) -> Self {
        Self { rest: map.into_iter(), value: None }
    }
}

fn key(text: String) -> StringDeserializer<Fault> {
    text.into_deserializer()
}

impl<'de> MapAccess<'de> for Entries {
    type Error = Fault;

    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, seed: K) -> Result<Option<K::Value>, Fault> {
        let Some((name, value)) = self.rest.next() else { return Ok(None) };
        let known = seed.deserialize(key(name.clone()))?;
        self.value = Some((name, value));
        Ok(Some(known))
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value, Fault> {
        let (name, value) = self.value.take().ok_or_else(|| Fault::new(Code::Syntax, "a value without its key"))?;
        seed.deserialize(Strict(value)).map_err(|fault| fault.under(Step::Key(name)))
    }

    fn size_hint(&self) -> Option<usize> {
        Some(self.rest.len())
    }
}

struct Variant {
    name: String,
    content: Option<Value>,
}

impl<'de> EnumAccess<'de> for Variant {
    type Error = Fault;
    type Variant = Content;

    fn variant_seed<V: DeserializeSeed<'de>>(self, seed: V) -> Result<(V::Value, Content), Fault> {
        let variant = seed.deserialize(key(self.name.clone()))?;
        Ok((variant, Content { name: self.name, value: self.content }))
    }
}

struct Content {
    name: String,
    value: Option<Value>,
}

impl<'de> VariantAccess<'de> for Content {
    type Error = Fault;

    fn unit_variant(self) -> Result<(), Fault> {
        match self.value {
            None | Some(Value::Null) => Ok(()),
            Some(value) => {
                Err(Fault::expected("nothing".to_owned(), &found(&value), Vec::new()).under(Step::Key(self.name)))
            }
        }
    }

    fn newtype_variant_seed<T: DeserializeSeed<'de>>(self, seed: T) -> Result<T::Value, Fault> {
        let value = self.value.unwrap_or_default();
        seed.deserialize(Strict(value)).map_err(|fault| fault.under(Step::Key(self.name)))
    }

    fn tuple_variant<V: Visitor<'de>>(self, _: usize, visitor: V) -> Result<V::Value, Fault> {
        let value = self.value.unwrap_or_default();
        Strict(value).deserialize_any(visitor).map_err(|fault| fault.under(Step::Key(self.name)))
    }

    fn struct_variant<V: Visitor<'de>>(self, fields: &'static [&'static str], visitor: V) -> Result<V::Value, Fault> {
        let made = match self.value {
            Some(Value::Object(map)) => visitor.visit_map(Entries::of(map)),
            Some(other) => Err(Fault::no_struct(&found(&other), fields)),
            None => Err(Fault::no_struct(&Unexpected::Other("nothing"), fields)),
        };
        made.map_err(|fault| fault.under(Step::Key(self.name)))
    }
}
