use super::*;

const HEADER: &str = "--[[\npurpose   Renew the lease of one room.\nkey  1    string   owner    the lease\n\
                      arg  1    text     me       name/incarnation\nreturns   {\"ok\", deadline_ms} | {\"missing\"}\n\
                      keeps     I-1\n]]\n";
const BODY: &str = "local owner_key = KEYS[1]\nlocal me = ARGV[1]\n\nlocal holder = redis.call(\"GET\", owner_key)\n\
                    if holder ~= me then\n  return {\"missing\"}\nend\nreturn {\"ok\", 1}\n";

fn found(files: &[(&str, &str)]) -> Vec<String> {
    problems(&Tree::of(files)).iter().map(ToString::to_string).collect()
}

/// Problems of one command file made of `HEADER` and `body`, without its path.
fn of_body(body: &str) -> Vec<String> {
    of_script(&format!("{HEADER}{body}"))
}

fn of_script(text: &str) -> Vec<String> {
    let problems = found(&[("redis-scripts/lua/renew.lua", text)]);
    problems.into_iter().map(|line| line.replace("redis-scripts/lua/renew.lua:", "")).collect()
}

#[test]
fn a_script_that_keeps_its_word_passes() {
    assert_eq!(of_body(BODY), Vec::<String>::new());
}

#[test]
fn keys_and_arguments_are_those_of_the_header() {
    let body = BODY.replace("local me = ARGV[1]", "local me, more = ARGV[2], #KEYS");
    assert_eq!(
        of_body(&body),
        [
            "4: arg 1 is never read",
            "9: ARGV[2] is not in the header",
            "9: KEYS is read by a computed index, and no key is a tail (`n..`)",
            "9: `more` is bound and never used",
        ]
    );
}

#[test]
fn a_number_is_read_once_and_at_the_top() {
    let body = BODY.replace("return {\"ok\", 1}", "return {\"ok\", redis.call(\"PTTL\", KEYS[1]), ARGV[2]}");
    let script = format!("{}{body}", HEADER.replace("returns", "arg  2    ms       ttl\nreturns"));
    assert_eq!(
        of_script(&script),
        [
            "16: ARGV[2] is read below the bindings at the top",
            "16: KEYS[1] is read again; line 9 bound it to a name",
        ]
    );
}

#[test]
fn a_tail_is_read_by_a_computed_index() {
    let header = HEADER.replace("arg  1    text", "arg  1..  text");
    let looped = BODY.replace("local me = ARGV[1]\n", "local me\nfor i = 1, #ARGV do\n  me = ARGV[i]\nend\n");
    assert_eq!(of_script(&format!("{header}{looped}")), Vec::<String>::new());
    let unread = BODY.replace("ARGV[1]", "\"x\"");
    assert_eq!(of_script(&format!("{header}{unread}")), ["4: arg 1.. is never read"]);
}

#[test]
fn replies_agree_both_ways() {
    let body = BODY.replace("{\"missing\"}", "{ \"stolen\", holder }");
    assert_eq!(
        of_body(&body),
        ["5: reply \"missing\" is never returned", "13: reply \"stolen\" is not in `returns`"]
    );
}

#[test]
fn clocks_chance_and_unwritten_commands_are_refused() {
    let body = BODY.replace(
        "return {\"ok\", 1}",
        "local call = redis.call\nlocal now = os.time() + math.random(5)\nredis.call(me)\nredis.pcall(\"get\", me)\nreturn {\"ok\", now}",
    );
    assert_eq!(
        of_body(&body),
        [
            "15: the first argument of `redis.call` is the command's name, written out",
            "16: a script draws no random numbers; pass them in",
            "16: time comes from `redis.call(\"TIME\")`, not from `os`",
            "17: the first argument of `redis.call` is the command's name, written out",
            "18: a command's name is written in upper case",
        ]
    );
}

#[test]
fn a_key_is_passed_in_or_declared() {
    let made = BODY.replace("redis.call(\"GET\", owner_key)", "redis.call(\"GET\", owner_key .. me)");
    let message = "a key or channel is made here: pass it in, or say `derives` in the header";
    assert_eq!(of_body(&made), [format!("11: {message}")]);
    let declared = HEADER.replace("returns", "derives   owner  from owner\nreturns");
    assert_eq!(of_script(&format!("{declared}{made}")), Vec::<String>::new());
    assert_eq!(of_script(&format!("{declared}{BODY}")), ["5: `derives`, but no key or channel is made"]);
    let through_names = BODY.replace(
        "local holder = redis.call(\"GET\", owner_key)",
        "local function name_of(a)\n  return owner_key .. a\nend\nlocal channel = name_of(me)\n\
         local holder = redis.call(\"PUBLISH\", channel, me .. me)",
    );
    assert_eq!(of_body(&through_names), [format!("15: {message}")]);
    let literal = BODY.replace("\"GET\", owner_key", "\"GET\", \"owner\" ");
    assert!(of_body(&literal).contains(&format!("11: {message}")));
    let value = BODY.replace("\"GET\", owner_key", "\"HGET\", owner_key, me .. \"x\"");
    assert_eq!(of_body(&value), Vec::<String>::new());
}

const LEASE: &str = "--[[\ninclude   lease\npurpose   Who holds it.\ndefines   holds(key, me)\ndefines   refused(key)\n]]\n\
                     local function holds(key, me)\n  return redis.call(\"GET\", key) == me\nend\n\n\
                     local function refused(key)\n  return {\"wrongtype\", key}\nend\n";

#[test]
fn an_included_function_brings_its_codes_only_where_it_is_used() {
    let script =
        |line: &str| format!("{HEADER}--%include lease\n{}", BODY.replace("if holder ~= me then", line));
    let with = |script: &str| {
        found(&[("redis-scripts/lua/renew.lua", script), ("redis-scripts/lua/includes/lease.lua", LEASE)])
    };
    let used = script("if holder ~= me and not holds(owner_key, holder) then");
    assert_eq!(with(&used), Vec::<String>::new());
    let refusing = script("if me == holder then return refused(owner_key) end\nif holder ~= me then");
    assert_eq!(
        with(&refusing),
        [
            "redis-scripts/lua/renew.lua:5: reply \"wrongtype\" (from redis-scripts/lua/includes/lease.lua) is not in `returns`"
        ]
    );
    let unused = script("if holder ~= me then");
    assert_eq!(with(&unused), ["redis-scripts/lua/renew.lua:8: nothing of include `lease` is used"]);
}

#[test]
fn what_is_called_is_included_and_offered() {
    let hidden = LEASE.replace("defines   refused(key)\n", "").replace("== me", "== refused(me)");
    let with = |body: &str| {
        let script = format!("{HEADER}{body}");
        found(&[("redis-scripts/lua/renew.lua", &script), ("redis-scripts/lua/includes/lease.lua", &hidden)])
    };
    let calling = BODY.replace("if holder", "if holds(owner_key, me) and holder");
    assert_eq!(
        with(&calling),
        [
            "redis-scripts/lua/renew.lua:1: `holds` is used in redis-scripts/lua/renew.lua and include `lease` is not named"
        ]
    );
    let taking = format!("--%include lease\n{}", BODY.replace("if holder", "if refused(me) and holder"));
    assert!(with(&taking).contains(
        &"redis-scripts/lua/renew.lua:8: `refused` is used and not offered by include `lease`".to_owned()
    ));
}

#[test]
fn an_include_may_lean_on_another_that_the_script_names() {
    let other = "--[[\ninclude   other\npurpose   Leans on lease.\ndefines   free(key)\n]]\n\
                 local function free(key)\n  return not holds(key, nil)\nend\n";
    let body = BODY.replace("if holder", "if free(owner_key) and holder");
    let with = |named: &str| {
        let script = format!("{HEADER}{named}{body}");
        found(&[
            ("redis-scripts/lua/renew.lua", &script),
            ("redis-scripts/lua/includes/lease.lua", LEASE),
            ("redis-scripts/lua/includes/other.lua", other),
        ])
    };
    assert_eq!(with("--%include lease\n--%include other\n"), Vec::<String>::new());
    assert_eq!(
        with("--%include other\n"),
        [
            "redis-scripts/lua/renew.lua:1: `holds` is used in redis-scripts/lua/includes/other.lua and include `lease` is not named"
        ]
    );
}

#[test]
fn includes_exist_and_make_no_circle() {
    let missing = format!("{HEADER}--%include lost\n{BODY}");
    assert_eq!(of_script(&missing), ["8: there is no sound include `lost`"]);
    let file = |name: &str, other: &str| {
        format!(
            "--[[\ninclude   {name}\npurpose   One half.\ndefines   {name}()\n]]\n--%include {other}\n\
             local function {name}()\n  return {other}()\nend\n"
        )
    };
    let (one, two) = (file("one", "two"), file("two", "one"));
    let problems =
        found(&[("redis-scripts/lua/includes/one.lua", &one), ("redis-scripts/lua/includes/two.lua", &two)]);
    assert_eq!(
        problems,
        [
            "redis-scripts/lua/includes/one.lua:1: include `one` includes itself",
            "redis-scripts/lua/includes/two.lua:1: include `two` includes itself",
        ]
    );
}

#[test]
fn an_include_defines_what_it_says_and_touches_no_keys() {
    let text = LEASE
        .replace("holds(key, me)\ndefines", "holds(key)\ndefines   gone(key)\ndefines")
        .replace("defines   refused(key)\n", "")
        .replace("== me", "== KEYS[1]");
    let problems = found(&[("redis-scripts/lua/includes/other.lua", &text)]);
    let problems: Vec<_> =
        problems.iter().map(|line| line.replace("redis-scripts/lua/includes/other.lua:", "")).collect();
    assert_eq!(
        problems,
        [
            "2: `lease` is in a file named `other`",
            "4: `holds` has other parameters in line 7",
            "5: `gone` is not defined",
            "8: an include does not read KEYS; pass it in",
            "11: `refused` is not in the header, and nothing here uses it",
        ]
    );
}
