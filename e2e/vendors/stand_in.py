"""Stands in for the servers of TRTC and Agora, on a port of 127.0.0.1 that the system gives.

Written from what the vendors publish, and in another language than what it tests, so that both can only agree by
being right. Needs Python 3.9 and nothing else.

The first line of its standard input is its configuration, a JSON object:

    {"trtc":  {"sdkAppId", "secretKey", "secretId", "apiSecretKey", "callbackKey", "privateMapKey": bool},
     "agora": {"appId", "appCertificate", "customerId", "customerSecret", "notificationSecret"},
     "nowMs": its clock, which then stands still; without it the clock is the machine's}

Its first line of output is {"port": n}. It ends with its standard input.

    POST /                                          TRTC: SetUserBlockedByStrRoomId, RemoveUserByStrRoomId,
                                                    DismissRoomByStrRoomId
    POST /dev/v1/kicking-rule                       Agora
    GET  /dev/v1/channel/{app}                      Agora
    GET  /dev/v1/channel/user/{app}/{channel}       Agora

What clients and consoles do is asked for below /control/, where each answer is {"ok": true, ...} or {"error": why}:

    POST /control/clock           {"nowMs"}
    POST /control/trtc/enter      {"strRoomId", "userId", "userSig", "privateMapKey"?} -> {"privileges"}
    POST /control/trtc/callback   {"url", "eventType", "info": fields of EventInfo, "alter"?: true} -> {"status"}
    POST /control/agora/join      {"channel", "uid", "token", "broadcaster"?: true} -> {"privileges"}
    POST /control/agora/notice    {"url", "eventType", "noticeId", "payload", "alter"?: true} -> {"status"}
    GET  /control/state           -> {"trtc": {room: {user: IsMute}}, "agora": {channel: {uid: broadcaster}}}

"alter" changes a byte of the body after it is signed.
"""

import base64
import binascii
import datetime
import hashlib
import hmac
import json
import struct
import sys
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
import zlib
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

LARGEST_BODY = 1 << 20


class Refused(Exception):
    """Why something is not done, in the vendor's words where it has some."""

    def __init__(self, reason, status=403):
        super().__init__(reason)
        self.reason = reason
        self.status = status


def hmac_sha256(key, text):
    return hmac.new(key, text, hashlib.sha256).digest()


def base64_of(data):
    return base64.b64encode(data).decode()


def unpacked(text, what):
    """Undoes base64 and zlib."""
    try:
        return zlib.decompress(base64.b64decode(text, validate=True))
    except (binascii.Error, zlib.error, ValueError) as error:
        raise Refused(f"{what}: form") from error


class Cursor:
    """Reads what is packed; `order` as in struct."""

    def __init__(self, data, order):
        self.data, self.order, self.at = data, order, 0

    def number(self, kind):
        size = struct.calcsize(kind)
        if self.at + size > len(self.data):
            raise Refused("cut short")
        (value,) = struct.unpack_from(self.order + kind, self.data, self.at)
        self.at += size
        return value

    def bytes(self):
        size = self.number("H")
        if self.at + size > len(self.data):
            raise Refused("cut short")
        self.at += size
        return self.data[self.at - size : self.at]

    def rest(self):
        return self.data[self.at :]


class Trtc:
    """One TRTC application: string rooms, by their users and how those are blocked."""

    CREATE, JOIN = 1, 2
    REGIONS = ("ap-beijing", "ap-guangzhou", "ap-singapore")
    CLOCKS_APART_S = 300

    def __init__(self, config, now_s):
        self.config, self.now_s, self.rooms = config, now_s, {}

    def api(self, headers, body):
        """One call of the API. What is wrong is said with status 200."""
        try:
            self.prove(headers, body)
            self.act(headers.get("X-TC-Action"), json.loads(body))
            said = {}
        except Refused as refused:
            said = {"Error": {"Code": refused.reason, "Message": "see the code"}}
        except (KeyError, TypeError, ValueError):
            said = {"Error": {"Code": "InvalidParameter", "Message": "the body"}}
        return {"Response": {**said, "RequestId": "11111111-2222-3333-4444-555555555555"}}

    def prove(self, headers, body):
        """TC3-HMAC-SHA256, version 3 of the signature of requests."""
        if headers.get("X-TC-Version") != "2019-07-22":
            raise Refused("NoSuchVersion")
        if headers.get("X-TC-Region") not in self.REGIONS:
            raise Refused("UnsupportedRegion")
        method, _, parts = headers.get("Authorization", "").partition(" ")
        fields = dict(part.strip().partition("=")[::2] for part in parts.split(","))
        if method != "TC3-HMAC-SHA256" or not {"Credential", "SignedHeaders", "Signature"} <= fields.keys():
            raise Refused("AuthFailure.InvalidAuthorization")
        at = headers.get("X-TC-Timestamp", "")
        if not at.isdigit() or abs(self.now_s() - int(at)) > self.CLOCKS_APART_S:
            raise Refused("AuthFailure.SignatureExpire")
        day = datetime.datetime.fromtimestamp(int(at), datetime.timezone.utc).strftime("%Y-%m-%d")
        scope = f"{day}/trtc/tc3_request"
        if fields["Credential"] != f"{self.config['secretId']}/{scope}":
            raise Refused("AuthFailure.SecretIdNotFound")
        names = fields["SignedHeaders"].split(";")
        if names != sorted(names) or not {"content-type", "host"} <= set(names):
            raise Refused("AuthFailure.InvalidAuthorization")
        signed = "".join(f"{name}:{(headers.get(name) or '').strip().lower()}\n" for name in names)
        request = f"POST\n/\n\n{signed}\n{';'.join(names)}\n{hashlib.sha256(body).hexdigest()}"
        text = f"TC3-HMAC-SHA256\n{at}\n{scope}\n{hashlib.sha256(request.encode()).hexdigest()}"
        key = ("TC3" + self.config["apiSecretKey"]).encode()
        for part in (day, "trtc", "tc3_request"):
            key = hmac_sha256(key, part.encode())
        if not hmac.compare_digest(hmac_sha256(key, text.encode()).hex(), fields["Signature"]):
            raise Refused("AuthFailure.SignatureFailure")

    def act(self, action, asked):
        actions = {
            "SetUserBlockedByStrRoomId": ("StrRoomId", self.block),
            "RemoveUserByStrRoomId": ("RoomId", self.remove),
            "DismissRoomByStrRoomId": ("RoomId", lambda room, _: self.rooms.pop(room)),
        }
        if action not in actions:
            raise Refused("InvalidAction")
        if asked["SdkAppId"] != self.config["sdkAppId"]:
            raise Refused("UnauthorizedOperation.SdkAppId")
        field, do = actions[action]
        if not isinstance(asked[field], str):
            raise Refused("InvalidParameter.RoomId")
        if asked[field] not in self.rooms:
            raise Refused("FailedOperation.RoomNotExist")
        do(asked[field], asked)

    def block(self, room, asked):
        if asked["UserId"] not in self.rooms[room]:
            raise Refused("FailedOperation.UserNotExist")
        if asked["IsMute"] not in (0, 1, 2, 3):
            raise Refused("InvalidParameter")
        self.rooms[room][asked["UserId"]] = asked["IsMute"]

    def remove(self, room, asked):
        users = asked["UserIds"]
        if not isinstance(users, list) or not 1 <= len(users) <= 10:
            raise Refused("InvalidParameter.UserIds")
        if not any(user in self.rooms[room] for user in users):
            raise Refused("FailedOperation.UserNotExist")
        for user in users:
            self.rooms[room].pop(user, None)
        if not self.rooms[room]:
            del self.rooms[room]

    def enter(self, asked):
        """A client enters a room with what it was granted."""
        room, user = asked["strRoomId"], asked["userId"]
        if self.opened(asked["userSig"], user, "UserSig") is not None:
            raise Refused("UserSig: is a PrivateMapKey")
        privileges = 255
        if self.config.get("privateMapKey"):
            rights = self.opened(asked.get("privateMapKey") or "", user, "PrivateMapKey")
            privileges = self.privileges(rights, room, user)
            needed = self.JOIN if room in self.rooms else self.JOIN | self.CREATE
            if privileges & needed != needed:
                raise Refused("PrivateMapKey: rights")
        self.rooms.setdefault(room, {})[user] = 0
        return {"privileges": privileges}

    def opened(self, sig, user, what):
        """Proves a UserSig; gives the rights in it, if it has any."""
        said = json.loads(unpacked(sig.translate(str.maketrans("*-_", "+/=")), what))
        lines = [("identifier", "TLS.identifier"), ("sdkappid", "TLS.sdkappid")]
        lines += [("time", "TLS.time"), ("expire", "TLS.expire")]
        text = "".join(f"TLS.{name}:{said[field]}\n" for name, field in lines)
        if "TLS.userbuf" in said:
            text += f"TLS.userbuf:{said['TLS.userbuf']}\n"
        right = base64_of(hmac_sha256(self.config["secretKey"].encode(), text.encode()))
        if said["TLS.ver"] != "2.0" or not hmac.compare_digest(right, said["TLS.sig"]):
            raise Refused(f"{what}: signature")
        if said["TLS.sdkappid"] != self.config["sdkAppId"] or said["TLS.identifier"] != user:
            raise Refused(f"{what}: of another")
        if not said["TLS.time"] - self.CLOCKS_APART_S <= self.now_s() < said["TLS.time"] + said["TLS.expire"]:
            raise Refused(f"{what}: expired")
        rights = said.get("TLS.userbuf")
        return None if rights is None else base64.b64decode(rights, validate=True)

    def privileges(self, rights, room, user):
        if rights is None:
            raise Refused("PrivateMapKey: no rights")
        cursor = Cursor(rights, ">")
        is_string, of_user = cursor.number("B"), cursor.bytes()
        app, number, ends, privileges, _ = (cursor.number("I") for _ in range(5))
        of_room = cursor.bytes()
        is_whole = is_string == 1 and number == 0 and cursor.rest() == b""
        is_theirs = (of_user, of_room, app) == (user.encode(), room.encode(), self.config["sdkAppId"])
        if not is_whole or not is_theirs or self.now_s() >= ends:
            raise Refused("PrivateMapKey: of another")
        return privileges

    def callback(self, asked, now_ms):
        """Body and headers of a callback, in the vendor's own spacing."""
        kind = asked["eventType"]
        event = {"EventGroupId": kind // 100, "EventType": kind, "CallbackTs": now_ms, "EventInfo": asked["info"]}
        body = json.dumps(event, indent="\t", separators=(",", ":\t")).encode()
        sign = base64_of(hmac_sha256(self.config["callbackKey"].encode(), body))
        return body, {"Sign": sign, "SdkAppId": str(self.config["sdkAppId"])}


class Agora:
    """One Agora project: channels, by their users and whether those broadcast; and rules, by when they end."""

    PRIVILEGES = {"join_channel", "publish_audio", "publish_video"}
    JOIN, AUDIO, VIDEO = 1, 2, 3

    def __init__(self, config, now_s):
        self.config, self.now_s, self.channels, self.rules = config, now_s, {}, []

    def authorize(self, headers):
        right = base64_of(f"{self.config['customerId']}:{self.config['customerSecret']}".encode())
        if not hmac.compare_digest(headers.get("Authorization", "").encode(), f"Basic {right}".encode()):
            raise Refused("Invalid authentication credentials", 401)

    def rule(self, asked):
        channel, uid = asked.get("cname"), asked.get("uid")
        is_number = isinstance(uid, int) and not isinstance(uid, bool) and 0 < uid < 1 << 32
        if asked["appid"] != self.config["appId"] or not set(asked["privileges"]) <= self.PRIVILEGES:
            raise Refused("invalid parameters", 400)
        if channel is None and uid is None or uid is not None and not is_number:
            raise Refused("invalid parameters", 400)
        minutes = asked.get("time", 60)
        if minutes:
            until = self.now_s() + 60 * min(max(minutes, 1), 1440)
            self.rules.append((channel, uid, tuple(asked["privileges"]), until))
        if "join_channel" in asked["privileges"]:
            for name in [channel] if channel is not None else list(self.channels):
                self.put_out(name, uid)
        return {"status": "success", "id": 1952 + len(self.rules)}

    def put_out(self, channel, uid):
        there = self.channels.get(channel, {})
        for one in [uid] if uid is not None else list(there):
            there.pop(one, None)
        if not there:
            self.channels.pop(channel, None)

    def listed(self, channel):
        if channel not in self.channels:
            return {"success": True, "data": {"channel_exist": False}}
        there = self.channels[channel]
        hosts = [uid for uid, broadcasts in there.items() if broadcasts]
        others = [uid for uid, broadcasts in there.items() if not broadcasts]
        data = {"channel_exist": True, "mode": 2, "broadcasters": hosts, "audience": others}
        return {"success": True, "data": {**data, "audience_total": len(others)}}

    def all(self):
        channels = [{"channel_name": name, "user_count": len(there)} for name, there in self.channels.items()]
        return {"success": True, "data": {"channels": channels[:1], "total_size": len(channels)}}

    def join(self, asked):
        """A client joins a channel with what it was granted; authentication of co-hosts is on."""
        channel, uid = asked["channel"], asked["uid"]
        privileges = self.opened(asked["token"], channel, uid)
        rights = {"join_channel": self.JOIN, "publish_audio": self.AUDIO, "publish_video": self.VIDEO}
        for of_channel, of_uid, names, until in self.rules:
            if of_channel in (None, channel) and of_uid in (None, uid) and self.now_s() < until:
                privileges -= {rights[name] for name in names}
        if self.JOIN not in privileges:
            raise Refused("token: no right to join")
        broadcasts = bool(asked.get("broadcaster"))
        if broadcasts and not privileges & {self.AUDIO, self.VIDEO}:
            raise Refused("token: no right to publish")
        self.channels.setdefault(channel, {})[uid] = broadcasts
        return {"privileges": sorted(privileges)}

    def opened(self, token, channel, uid):
        """Proves an AccessToken2; gives the privileges that still hold."""
        if not token.startswith("007"):
            raise Refused("token: version")
        outer = Cursor(unpacked(token[3:], "token"), "<")
        signature, info = outer.bytes(), outer.rest()
        cursor = Cursor(info, "<")
        app = cursor.bytes().decode()
        issued, lasts, salt, services = (cursor.number(kind) for kind in "IIIH")
        key = hmac_sha256(struct.pack("<I", issued), self.config["appCertificate"].encode())
        key = hmac_sha256(struct.pack("<I", salt), key)
        if not hmac.compare_digest(hmac_sha256(key, info), signature):
            raise Refused("token: signature")
        if app != self.config["appId"] or not 1 <= salt <= 99_999_998:
            raise Refused("token: of another")
        now = self.now_s()
        if now >= issued + lasts:
            raise Refused("token: expired")
        privileges = {}
        for _ in range(services):
            kind, count = cursor.number("H"), cursor.number("H")
            privileges = {cursor.number("H"): cursor.number("I") for _ in range(count)}
            named = cursor.bytes().decode(), cursor.bytes().decode()
            if kind != 1 or named != (channel, str(uid)):
                raise Refused("token: of another")
        if cursor.rest():
            raise Refused("token: form")
        return {privilege for privilege, ends in privileges.items() if now < issued + ends}

    def notice(self, asked, now_ms):
        notice = {"noticeId": asked["noticeId"], "productId": 1, "eventType": asked["eventType"]}
        body = json.dumps({**notice, "notifyMs": now_ms, "payload": asked["payload"]}).encode()
        key = self.config["notificationSecret"].encode()
        sha1, sha256 = (hmac.new(key, body, by).hexdigest() for by in (hashlib.sha1, hashlib.sha256))
        return body, {"Agora-Signature": sha1, "Agora-Signature-V2": sha256}


class Vendors:
    """Both, and the clock that they go by."""

    def __init__(self, config):
        self.stands_at = config.get("nowMs")
        self.lock = threading.Lock()
        self.trtc = Trtc(config["trtc"], lambda: self.now_ms() // 1000)
        self.agora = Agora(config["agora"], lambda: self.now_ms() // 1000)

    def now_ms(self):
        return time.time_ns() // 1_000_000 if self.stands_at is None else self.stands_at

    def answer(self, method, path, headers, body):
        """The status and the answer."""
        route = [urllib.parse.unquote(part) for part in urllib.parse.urlsplit(path).path.strip("/").split("/")]
        try:
            if route[0] == "control":
                return 200, {"ok": True, **self.control(method, route[1:], json.loads(body or b"{}"))}
            with self.lock:
                if route == [""]:
                    return 200, self.trtc.api(headers, body)
                self.agora.authorize(headers)
                return 200, self.of_agora(method, route, body)
        except Refused as refused:
            said = {"error": refused.reason} if route[0] == "control" else {"message": refused.reason}
            return refused.status, said
        except (KeyError, TypeError, ValueError) as error:
            return 400, {"error": f"{type(error).__name__}: {error}"}

    def of_agora(self, method, route, body):
        app = self.agora.config["appId"]
        if (method, route) == ("POST", ["dev", "v1", "kicking-rule"]):
            return self.agora.rule(json.loads(body))
        if (method, route) == ("GET", ["dev", "v1", "channel", app]):
            return self.agora.all()
        if method == "GET" and len(route) == 6 and route[:5] == ["dev", "v1", "channel", "user", app]:
            return self.agora.listed(route[5])
        raise Refused("no such resource", 404)

    def control(self, method, route, asked):
        if (method, route) == ("GET", ["state"]):
            with self.lock:
                return {"trtc": self.trtc.rooms, "agora": self.agora.channels}
        if method != "POST":
            raise Refused("no such resource", 404)
        if route == ["clock"]:
            self.stands_at = int(asked["nowMs"])
            return {}
        if route in (["trtc", "enter"], ["agora", "join"]):
            with self.lock:
                return self.trtc.enter(asked) if route[0] == "trtc" else self.agora.join(asked)
        if route == ["trtc", "callback"]:
            return send(asked, *self.trtc.callback(asked, self.now_ms()))
        if route == ["agora", "notice"]:
            return send(asked, *self.agora.notice(asked, self.now_ms()))
        raise Refused("no such resource", 404)


def send(asked, body, headers):
    """Posts a callback, and says what was answered."""
    if asked.get("alter"):
        middle = len(body) // 2
        body = body[:middle] + bytes([body[middle] ^ 1]) + body[middle + 1 :]
    headers = {"Content-Type": "application/json", **headers}
    request = urllib.request.Request(asked["url"], data=body, headers=headers)
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(request, timeout=5) as response:
            return {"status": response.status}
    except urllib.error.HTTPError as error:
        with error:
            return {"status": error.code}
    except OSError as error:
        raise Refused(f"the callback was not taken: {error}", 502) from error


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    # Answers are small, and written at once.
    disable_nagle_algorithm = True

    def handle_any(self):
        length = int(self.headers.get("Content-Length") or 0)
        if length > LARGEST_BODY:
            self.close_connection = True
            self.send_error(413)
            return
        body = self.rfile.read(length)
        status, answer = self.server.vendors.answer(self.command, self.path, self.headers, body)
        content = json.dumps(answer).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    do_GET = do_POST = handle_any

    def log_message(self, *_):
        """Says nothing: what is posted here holds tokens."""


def main():
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    server.vendors = Vendors(json.loads(sys.stdin.readline()))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    print(json.dumps({"port": server.server_port}), flush=True)
    sys.stdin.read()
    server.shutdown()


if __name__ == "__main__":
    main()
