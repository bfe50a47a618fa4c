/** A service over gRPC may do what a user of the same role may over REST: asked of both, for everything that both offer. */
import { afterAll, beforeAll, expect, test } from '@jest/globals';
import { newId } from '@virtkeep/shared/ids';
import { mayCall } from '../../../agent/src/grpc/permissions.ts';
import { makeRestApp, type RestApp } from './app.ts';

const id = newId();
const GUEST = `/api/domains/${id}`;
const SNAPSHOT = `/api/domains/${id}/snapshots/${newId()}`;

/** By the method of the agent: the request of REST that ends in it. */
const SAME: Record<string, string> = {
  'BackupService/Download': `GET /api/library/${id}/download/`,
  'BackupService/Refresh': `POST /api/library/${id}/refresh/`,
  'BackupService/Show': 'POST /api/domains/show-backup/',
  'BackupService/Start': 'POST /api/domains/backup/',
  'BackupService/Verify': `POST /api/library/${id}/verify/`,
  'DiskService/Attach': `POST ${GUEST}/attach-vdisk/`,
  'DiskService/Detach': `POST ${GUEST}/detach-vdisk/`,
  'DomainService/Get': `GET ${GUEST}/`,
  'DomainService/List': 'GET /api/domains/',
  'DomainService/Remove': `POST ${GUEST}/remove/`,
  'DomainService/Rename': `PUT ${GUEST}/`,
  'DomainService/SetPower': `POST ${GUEST}/start/`,
  'DomainService/Update': `PUT ${GUEST}/`,
  'GuestService/AddSshKeys': `POST ${GUEST}/ssh-keys/`,
  'GuestService/AttachTools': `POST ${GUEST}/attach-guest-tools-iso/`,
  'GuestService/DetachTools': `POST ${GUEST}/detach-guest-tools-iso/`,
  'GuestService/GetInfo': `GET ${GUEST}/guest-info/`,
  'GuestService/JoinDirectory': `POST ${GUEST}/add-to-ad/`,
  'GuestService/LeaveDirectory': `POST ${GUEST}/rm-from-ad/`,
  'GuestService/ListCommands': `GET ${GUEST}/available-guest-cmds/`,
  'GuestService/ListSshKeys': `GET ${GUEST}/ssh-keys/?ssh_user=root`,
  'GuestService/ListPreparations': `GET ${GUEST}/prepare-operations/`,
  'GuestService/Prepare': `POST ${GUEST}/prepare/`,
  'GuestService/RemoveSshKeys': `POST ${GUEST}/ssh-keys/remove/`,
  'GuestService/RunCommand': `POST ${GUEST}/guest-command/`,
  'GuestService/SetHostname': `POST ${GUEST}/set-hostname/`,
  'GuestService/Sysprep': `POST ${GUEST}/sysprep/`,
  'ImageService/Download': `GET /api/iso/${id}/download/`,
  'ImageService/List': 'GET /api/iso/',
  'ImageService/Upload': 'POST /api/iso/upload/',
  'NodeService/GetInfo': `GET /api/nodes/${id}/`,
  'OperationService/Cancel': `PUT /api/tasks/${id}/cancel/`,
  'OperationService/Get': `GET /api/tasks/${id}/`,
  'OperationService/List': 'GET /api/tasks/',
  'PoolService/Get': `GET /api/data-pools/${id}/`,
  'PoolService/List': 'GET /api/data-pools/',
  'PoolService/ListFiles': 'GET /api/library/',
  'PoolService/Scan': `POST /api/data-pools/${id}/scan/`,
  'PoolService/StreamFiles': 'GET /api/library/',
  'PoolService/Update': `PUT /api/data-pools/${id}/`,
  'RestoreService/ImportDisk': 'POST /api/domains/import-disk/',
  'RestoreService/Start': 'POST /api/domains/automated-restore/',
  'RestoreService/StartConfig': 'POST /api/domains/config-restore/',
  // what of that route needs more than a restore does
  'RestoreService/StartAppliance': 'POST /api/domains/config-restore/',
  'SnapshotService/Create': `POST ${GUEST}/snapshots/`,
  'SnapshotService/List': `GET ${GUEST}/snapshots/`,
  'SnapshotService/Remove': `POST ${SNAPSHOT}/remove/`,
  'SnapshotService/Revert': `POST ${SNAPSHOT}/revert/`,
  'TemplateService/Change': `POST ${GUEST}/change-template/`,
  'TemplateService/Clone': `POST ${GUEST}/clone/`,
  'UploadService/Abort': `DELETE /api/library/upload/${id}/`,
  'UploadService/Create': 'POST /api/library/upload/',
  'UploadService/Get': `GET /api/library/upload/${id}/`,
  'UploadService/Resume': `PATCH /api/library/upload/${id}/`,
  'UploadService/Write': `PATCH /api/library/upload/${id}/`,
};

/** A user that may read and no more is called auditor; the audit itself is on no node. */
const USERS = { reader: 'auditor', operator: 'operator' } as const;

let rest: RestApp;
beforeAll(async () => {
  rest = await makeRestApp();
});
afterAll(() => rest.close());

for (const role of ['reader', 'operator'] as const) {
  test.each(Object.entries(SAME))(`${role} and %s`, async (method, request) => {
    const [verb = '', url = ''] = request.split(' ');
    const body = verb === 'GET' ? undefined : {};
    const answer = await rest.call(verb, url, { as: USERS[role], body });
    // else it is about the VM, which does not exist
    expect([200, 400, 403, 404]).toContain(answer.status);
    expect(answer.body.errors?.[0]?.msg_key).not.toBe('not_found');
    expect(mayCall(role, `/virtkeep.agent.v1.${method}`, { command: 'guest-ping' })).toBe(
      answer.status !== 403,
    );
  });
}
