//! A store around another: every call passes through one function, which may count, repeat or fail it.

/// What a second call with the same arguments does, e.g. after the answer of the first was lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Repeat {
    /// Reads only; the answer is the current one.
    Reads,
    /// Changes nothing more than the first did; the answer is the same, or that it was done before.
    Idempotent,
    /// Changes more, or something else: only the caller knows whether to repeat it.
    Once,
}

/// A method of [`Store`](crate::store::Store) or of one of its parts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StoreMethod {
    /// Name of the method in the trait.
    pub name: &'static str,
    /// What a second call does.
    pub repeat: Repeat,
}

/// Defines the traits of the seam and a store for every [`Layer`], so that a signature is written once here and once
/// per backend.
macro_rules! seam {
    ($(
        $(#[doc = $about:expr])*
        pub trait $seam:ident $(: $first:ident $(+ $part:ident)*)? {$(
            $(#[doc = $doc:expr])*
            #[repeat($repeat:ident)]
            async fn $name:ident(&self $(, $arg:ident: $type:ty)* $(,)?) -> Result<$out:ty, StoreError>;
        )*}
    )*) => {
        $(
            $(#[doc = $about])*
            #[async_trait]
            pub trait $seam: Send + Sync + 'static $(+ $first $(+ $part)*)? {$(
                $(#[doc = $doc])*
                async fn $name(&self $(, $arg: $type)*) -> Result<$out, StoreError>;
            )*}

            #[async_trait]
            impl<L: Layer> $seam for L {$(
                async fn $name(&self $(, $arg: $type)*) -> Result<$out, StoreError> {
                    Layer::$name(self $(, $arg)*).await
                }
            )*}
        )*

        /// All methods of the seam.
        pub const METHODS: &[StoreMethod] =
            &[$($(StoreMethod { name: stringify!($name), repeat: Repeat::$repeat }),*),*];

        /// A store around another, which is a store itself: each method goes through [`Layer::around`] unless it is
        /// replaced.
        pub trait Layer: Send + Sync + 'static {
            /// The store inside.
            fn inner(&self) -> &dyn Store;

            /// Calls the store inside: once, unless replaced.
            fn around<T: Send, F: Future<Output = Result<T, StoreError>> + Send>(
                &self,
                _method: StoreMethod,
                call: impl Fn() -> F + Send + Sync,
            ) -> impl Future<Output = Result<T, StoreError>> + Send {
                call()
            }
            $($(
                #[doc = concat!("[`", stringify!($seam), "::", stringify!($name), "`].")]
                fn $name(&self $(, $arg: $type)*) -> impl Future<Output = Result<$out, StoreError>> + Send {
                    let method = StoreMethod { name: stringify!($name), repeat: Repeat::$repeat };
                    async move { self.around(method, || self.inner().$name($($arg),*)).await }
                }
            )*)*
        }
    };
}
pub(super) use seam;
