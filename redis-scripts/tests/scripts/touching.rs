//! `touch`: that people are still there.

use redis_scripts::{ScriptError, Touch, Touched};

use crate::world::{HORIZON, World, other_than, token_of};

impl World {
    async fn touch(
        &self,
        me: &key_prefix::Instance,
        token: redis_scripts::FenceToken,
        users: &[&str],
    ) -> Result<Touched, ScriptError> {
        self.scripts.touch(&self.keys, me, HORIZON, &[Touch { room: &self.room, token, users }]).await
    }
}

on_both! {
    async fn i_10_a_touch_never_makes_a_presence(world: &World) {
        let me = world.register("a").await;
        let token = token_of(&world.pin_seated(&me).await.unwrap());
        world.redis(&["ZADD", &world.names.presence.to_string(), "5", "ann"]).await;
        assert_eq!(world.touch(&me, token, &["ann", "bob"]).await.unwrap(), Touched::Ok { users: 2 });
        let presence = world.standing().await.state.presence;
        assert_eq!(presence.len(), 1);
        assert!(presence[0].0 == "ann" && presence[0].1.as_u64() > 5);
    }

    async fn i_10_a_touch_without_the_lease_is_nothing(world: &World) {
        let (a, b) = (world.register("a").await, world.register("b").await);
        let token = token_of(&world.pin_seated(&a).await.unwrap());
        let before = world.keyspace().await;
        for (who, with) in [(&a, other_than(token)), (&b, token)] {
            assert_eq!(world.touch(who, with, &["ann"]).await.unwrap(), Touched::Ok { users: 0 });
        }
        let nothing = world.scripts.touch(&world.keys, &a, HORIZON, &[]).await.unwrap();
        assert_eq!(nothing, Touched::Ok { users: 0 });
        world.redis(&["DEL", &world.names.owner.to_string()]).await;
        assert_eq!(world.touch(&a, token, &["ann"]).await.unwrap(), Touched::Ok { users: 0 }, "an expired lease");
        let again = world.register("a").await;
        let superseded = Touched::Superseded { by: again.incarnation() };
        assert_eq!(world.touch(&a, token, &["ann"]).await.unwrap(), superseded);
        world.redis(&["DEL", &world.keys.instance(&again).to_string()]).await;
        let after = world.keyspace().await;
        assert_eq!(before.get(&world.names.presence.to_string()), after.get(&world.names.presence.to_string()));
    }

    async fn a_room_with_people_falls_due_when_nobody_touches_them_any_more(world: &World) {
        let me = world.register("a").await;
        let token = token_of(&world.pin_seated(&me).await.unwrap());
        assert_eq!(world.due().await, None);
        world.touch(&me, token, &[]).await.unwrap();
        assert_eq!(world.due().await, None, "nobody is there");
        let before = world.now_ms().await;
        world.touch(&me, token, &["ann"]).await.unwrap();
        let horizon = i64::try_from(HORIZON.as_millis()).unwrap();
        assert!(world.due().await.is_some_and(|due| due >= before + horizon));
        let later = (before + 10 * horizon).to_string();
        world.redis(&["ZADD", &world.keys.due().to_string(), &later, world.room.route()]).await;
        world.touch(&me, token, &["ann"]).await.unwrap();
        assert_eq!(world.due().await, later.parse().ok(), "it only moves later");
    }
}
