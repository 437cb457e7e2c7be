//! A store around another: every call passes one function, which may count it, repeat it or fail it.

/// What a second call with the same arguments does, e.g. when the answer of the first was lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Repeat {
    /// Nothing, like the first: the answer is that of now.
    Reads,
    /// Nothing more than the first did; it answers the same, or that it was done before.
    Idempotent,
    /// More, or something else: only the caller knows what it means.
    Once,
}

/// A method of [`Store`](crate::store::Store) or of a part of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StoreMethod {
    /// As in the trait.
    pub name: &'static str,
    /// What a second call does.
    pub repeat: Repeat,
}

/// Makes the traits of the seam, and a store of every [`Layer`]: a signature stands here once and in the backends.
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

        /// A store around another. It is one itself: each method goes through [`Layer::around`] unless it is replaced.
        pub trait Layer: Send + Sync + 'static {
            /// The store inside.
            fn inner(&self) -> &dyn Store;

            /// Has a call reach the store inside: once unless replaced.
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
