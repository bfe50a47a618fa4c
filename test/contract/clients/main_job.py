"""The main job as a client of the API family does it: `async=1` and headers of its own with every request, an idempotency key in
every body of a POST. It prints what it made as JSON and fails at the first value of a kind that it does not expect.

usage: main_job.py <url> <username> <password> <domain> <borrower> <vdisk> <datapool>
"""
import asyncio
import json
import sys
import uuid

import aiohttp

HEADERS = {"X-Client-Version": "9.1", "X-Requested-With": "broker", "Accept-Language": "en"}
POLL_S = 0.05


def expect(value, kind, what):
    # a boolean is an int in this language
    if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
        raise TypeError(f"{what} is {value!r}, not {kind.__name__}")
    return value


class Client:
    def __init__(self, session, url):
        self.session = session
        self.url = url
        self.token = None

    async def call(self, method, path, body=None, **query):
        headers = dict(HEADERS)
        if self.token:
            headers["Authorization"] = f"jwt {self.token}"
        if method == "POST":
            body = {**(body or {}), "idempotency_key": str(uuid.uuid4())}
        params = {**query, "async": 1}
        request = self.session.request(method, self.url + path, json=body, params=params, headers=headers)
        async with request as response:
            answer = await response.json()
            if response.status >= 400:
                raise RuntimeError(f"{method} {path}: {response.status} {answer}")
            return answer

    async def login(self, username, password):
        answer = await self.call("POST", "/auth/", {"username": username, "password": password})
        self.token = expect(answer["token"], str, "token")

    async def get(self, path, **query):
        return await self.call("GET", path, **query)

    async def listed(self, path, **query):
        answer = await self.get(path, limit=10, offset=0, **query)
        expect(answer["count"], int, f"count of {path}")
        return expect(answer["results"], list, f"results of {path}")

    async def done(self, path, body, method="POST"):
        """Starts a task, waits for its end, and tells what it was about."""
        answer = await self.call(method, path, body)
        task = answer["_task"]
        while task["status"] == "IN_PROGRESS":
            await asyncio.sleep(POLL_S)
            task = await self.get(f"/api/tasks/{task['id']}/")
        if task["status"] != "SUCCESS":
            raise RuntimeError(f"{path}: {task['status']} {task['error_message']}")
        expect(task["user"]["id"], int, "id of a task's user")
        expect(task["permissions"], list, "permissions of a task")
        return answer["entity"]


async def walk(client):
    """From clusters down to VMs, as a client does that shows a tree."""
    for cluster in await client.listed("/api/clusters/"):
        await client.get(f"/api/clusters/{cluster['id']}/")
        for pool in await client.listed("/api/resource-pools/", cluster=cluster["id"]):
            await client.get(f"/api/resource-pools/{pool['id']}/")
            await client.listed("/api/domains/", resource_pool=pool["id"], ordering="verbose_name")
        for node in await client.listed("/api/nodes/", cluster=cluster["id"]):
            usage = await client.get(f"/api/nodes/{node['id']}/usage/")
            expect(usage["cpu_count"], int, "cpu_count")


async def main(url, username, password, domain, borrower, vdisk, datapool):
    async with aiohttp.ClientSession() as session:
        client = Client(session, url)
        await client.login(username, password)
        await walk(client)
        pool = await client.get(f"/api/data-pools/{datapool}/")
        expect(pool["shared"], bool, "shared")
        if pool["shared_storage"] is not None:
            expect(pool["shared_storage"], dict, "shared_storage")
        record = await client.get(f"/api/domains/{domain}/")
        expect(record["permissions"], list, "permissions of a VM")

        file = await client.done("/api/domains/backup/", {"domain": domain, "datapool": datapool})
        backup = await client.get(f"/api/library/{file}/")
        expect(backup["size"], int, "size of a backup")
        found = await client.listed("/api/library/", domain=domain)
        assert [one["id"] for one in found] == [file]

        await client.done(f"/api/domains/{borrower}/attach-vdisk/", {"vdisk": vdisk, "bus": "ignored"})
        lent = await client.listed("/api/vdisks/", another_domain=borrower)
        assert [one["id"] for one in lent] == [vdisk]
        await client.done(f"/api/domains/{borrower}/detach-vdisk/", {"vdisk": vdisk})
        assert await client.listed("/api/vdisks/", another_domain=borrower) == []

        restored = await client.done(
            "/api/domains/automated-restore/",
            {"file": file, "node": record["node"]["id"], "datapool": datapool},
        )
        await client.call("PUT", f"/api/domains/{restored}/", {"description": "restored"})
        await client.done(f"/api/domains/{restored}/", {"verbose_name": f"of {domain}"}, "PUT")
        assert (await client.get(f"/api/domains/{restored}/"))["verbose_name"] == f"of {domain}"
        everyone = {"action": "start", "entity_ids": [restored], "full": True, "force": False}
        await client.done("/api/domains/multi-manager/", everyone)
        tag = await client.call("POST", "/api/tags/", {"verbose_name": f"of {restored}"})
        entity = {"entity_uuid": restored, "entity_class": "domain"}
        await client.call("POST", f"/api/tags/{tag['id']}/add-entity/", entity)
        tagged = await client.listed("/api/domains/", tag=tag["id"])
        assert [one["id"] for one in tagged] == [restored]
        for event in await client.listed("/api/events/", entity=file):
            await client.get(f"/api/events/{event['id']}/")
        print(json.dumps({"file": file, "restored": restored}))


asyncio.run(main(*sys.argv[1:]))
