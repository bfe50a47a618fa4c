"""The main job with the client that openapi-generator makes of the API document: the package `virtkeep_client`. It prints what it made
as JSON; the client itself refuses records that are not as the document says.

usage: generated_main_job.py <url> <username> <password> <domain> <datapool>
"""
import datetime
import importlib
import json
import pkgutil
import sys
import time

import virtkeep_client
from virtkeep_client import ApiException, AuthBody, DomainsAutomatedRestoreBody, DomainsBackupBody

POLL_S = 0.02


def import_everything():
    """Every module of the client, whether the job needs it or not."""
    for module in pkgutil.walk_packages(virtkeep_client.__path__, f"{virtkeep_client.__name__}."):
        importlib.import_module(module.name)


class MainJob:
    def __init__(self, url):
        self.configuration = virtkeep_client.Configuration(host=url)
        self.client = virtkeep_client.ApiClient(self.configuration)
        self.backups = virtkeep_client.BackupsApi(self.client)
        self.domains = virtkeep_client.DomainsApi(self.client)
        self.library = virtkeep_client.LibraryApi(self.client)
        self.tasks = virtkeep_client.TasksApi(self.client)

    def login(self, username, password):
        issued = virtkeep_client.AuthApi(self.client).auth(AuthBody(username=username, password=password))
        assert issued.expires_on > datetime.datetime.now(datetime.timezone.utc)
        self.configuration.api_key["token"] = issued.token
        self.configuration.api_key_prefix["token"] = "jwt"

    def ended(self, call, body):
        """Starts a task and waits for its end. This generator knows one record of a call, that of 200: it is told that of 202."""
        accepted = self.client.deserialize(call(body, _async=1, _preload_content=False), "TaskAccepted")
        task = accepted.task
        while task.status == "IN_PROGRESS":
            time.sleep(POLL_S)
            task = self.tasks.tasks_get(task.id)
        if task.status != "SUCCESS":
            raise RuntimeError(f"{task.name}: {task.error_message}")
        return accepted.entity

    def run(self, domain, datapool):
        found = next(one for one in self.domains.domains_list(limit=10).results if one.id == domain)
        node = self.domains.domains_get(found.id).node
        backup = DomainsBackupBody(domain=domain, datapool=datapool, can_be_incremental=True)
        file = self.ended(self.backups.domains_backup, backup)
        # the waiting form
        extended = self.backups.domains_backup(DomainsBackupBody(domain=domain, backup=file)).id
        record = self.library.library_get(extended)
        assert record.domain.id == domain and record.datapool.id == datapool
        name = f"{found.verbose_name} once more"
        body = DomainsAutomatedRestoreBody(file=file, node=node.id, datapool=datapool, verbose_name=name)
        restored = self.ended(self.backups.domains_automated_restore, body)
        return {"file": file, "extended": extended, "states": len(record.states), "restored": restored}

    def refused(self):
        """The key of the error that the client raises for a VM that is not there."""
        try:
            self.domains.domains_get("00000000-0000-4000-8000-000000000000")
        except ApiException as error:
            return json.loads(error.body)["errors"][0]["msg_key"]


def main(url, username, password, domain, datapool):
    import_everything()
    job = MainJob(url)
    job.login(username, password)
    print(json.dumps({**job.run(domain, datapool), "refused": job.refused()}))


main(*sys.argv[1:])
