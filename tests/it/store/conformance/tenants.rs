//! The users of a tenant are counted on the list of owners, and no more than allowed are registered.

use super::*;
use futures::future::join_all;
use trellis::domain::ids::OwnerPart;
use trellis::store::OwnerRegistration::{Full, Listed};

fn owner(name: &str) -> Owner {
    name.parse().unwrap()
}

async fn users(world: &World, tenant: &str) -> u64 {
    world.store.tenant_users(&OwnerPart::new(tenant).unwrap()).await.unwrap()
}

pub async fn a_tenants_users_are_counted_and_limited(world: World) {
    let register = async |name: &str, most: u64| world.store.register_owner(&owner(name), most).await.unwrap();
    assert_eq!(users(&world, "acme").await, 0);
    assert_eq!(register("acme/bob", 2).await, Listed);
    assert_eq!(register("acme/bob", 2).await, Listed, "a second call is the same");
    assert_eq!(register("acme/c%:d", 2).await, Listed);
    assert_eq!(users(&world, "acme").await, 2);
    for (name, most, expected) in [
        ("acme/eve", 2, Full { users: 2 }),
        ("acme/eve", 1, Full { users: 2 }),
        ("acme/bob", 1, Listed),
        // Names that begin alike are other tenants.
        ("acme2/eve", 1, Listed),
        ("acme-x/eve", 1, Listed),
        ("acm/eve", 1, Listed),
        // What a tenant shares is stored for no user.
        ("acme/_venue", 9, Listed),
        ("acme/eve", 2, Full { users: 2 }),
        ("acme/eve", 3, Listed),
    ] {
        assert_eq!(register(name, most).await, expected, "{name} of {most}");
    }
    let mut listed = world.store.owners(None, 100).await.unwrap();
    listed.retain(|owner| owner.tenant().as_str().starts_with("acm"));
    assert_eq!((listed.len(), users(&world, "acme").await, users(&world, "acm").await), (7, 3, 1), "{listed:?}");
}

pub async fn owners_with_documents_are_never_too_many(world: World) {
    for name in ["acme/ann", "acme/bob"] {
        world.store.write(T0, &owner(name), &[put("w/a", "1")]).await.unwrap();
    }
    for name in ["acme/ann", "acme/bob"] {
        assert_eq!(world.store.register_owner(&owner(name), 1).await.unwrap(), Listed, "{name}");
    }
    assert_eq!(world.store.register_owner(&owner("acme/eve"), 1).await.unwrap(), Full { users: 2 });
    assert_eq!(users(&world, "acme").await, 2);
}

pub async fn registrations_at_once_do_not_pass_the_limit(world: World) {
    let owners: Vec<Owner> = (0..20).map(|n| owner(&format!("acme/u{n}"))).collect();
    let answers = join_all(owners.iter().map(|owner| world.store.register_owner(owner, 5))).await;
    let listed = answers.into_iter().filter(|answer| *answer.as_ref().unwrap() == Listed).count();
    assert_eq!((listed, users(&world, "acme").await), (5, 5));
}
