/** Operations inside of guests (specification 4.6), as tasks. What they are given may be secret and is stored nowhere. */
import Type, { type Static, type TObject, type TProperties, type TSchema } from 'typebox';
import type { Principal } from '../../auth/principal.ts';
import type { Services } from '../../services/services.ts';
import type { TaskState } from '../../services/tasks/tasks.ts';
import { LONG_ACTION, runTask } from '../actions.ts';
import type { App, RouteModule } from '../app.ts';
import { principalOf } from '../app.ts';
import { AllowNetworkLayers, AsyncQuery, body, GivenUuid, IdParams, oneOf, ref } from '../schemas/common.ts';
import {
  ChangedSshKeysSchema,
  DirectoryJoinedSchema,
  DirectoryLeftSchema,
  GuestPreparedSchema,
  GuestToolsSchema,
  HostnameSetSchema,
  RestartFlag,
  SshUser,
  SysprepRunSchema,
} from '../schemas/guest.ts';
import { taskAnswers } from '../schemas/task.ts';

const HostName = Type.String({ minLength: 1, maxLength: 253 });
const Login = Type.String({ minLength: 1, maxLength: 256 });
const Password = Type.String({ minLength: 1, maxLength: 256, description: 'never stored, never logged' });
const SshKey = Type.String({ minLength: 1, maxLength: 16_384 });

const HOSTNAME = {
  hostname: Type.Optional(Type.String({ ...HostName, description: "the VM's name when absent" })),
  restart: Type.Optional(RestartFlag),
  allow_network_layers: Type.Optional(AllowNetworkLayers),
};
const JOIN = {
  domainname: Type.String({ ...HostName, description: 'DNS name of the directory' }),
  login: Login,
  password: Password,
  newname: Type.Optional(Type.String({ ...HostName, description: 'new computer name' })),
  oupath: Type.Optional(
    Type.String({ minLength: 1, maxLength: 2048, description: 'full DN of the organizational unit' }),
  ),
  restart: Type.Optional(RestartFlag),
  install_packages: Type.Optional(
    Type.Boolean({
      description:
        'Linux: install the packages that joining needs and the guest lacks, by its own package manager. false: the call fails with guest_packages_missing, which names them. When absent they are installed where the package manager gets them from its sources, and are told as missing elsewhere.',
    }),
  ),
};
const LEAVE = {
  login: Login,
  password: Password,
  domainname: Type.Optional(
    Type.String({ ...HostName, description: 'Linux only; the one it is in when absent' }),
  ),
  restart: Type.Optional(RestartFlag),
};
const KEYS = {
  ssh_user: SshUser,
  ssh_key: Type.Unsafe<string | string[]>({
    anyOf: [SshKey, Type.Array(SshKey, { minItems: 1, maxItems: 64 })],
    description: 'a line as in a .pub file, or several',
  }),
  allow_network_layers: Type.Optional(AllowNetworkLayers),
};
const SYSPREP = {
  mode: Type.Optional(oneOf(['oobe', 'audit'] as const)),
  action: Type.Optional(oneOf(['shutdown', 'reboot', 'quit'] as const)),
  generalize: Type.Optional(Type.Boolean({ default: true })),
  vm_mode: Type.Optional(Type.Boolean({ default: false })),
  unattend: Type.Optional(Type.String({ maxLength: 1_000_000, description: 'text of an answer file' })),
};
const PREPARE = {
  boot_disk: Type.Optional(
    Type.String({ ...GivenUuid, description: 'the disk with the system; else the first' }),
  ),
  operations: Type.Optional(
    Type.Array(Type.String({ minLength: 1, maxLength: 64 }), {
      maxItems: 100,
      description: 'of virt-sysprep; its defaults when absent',
    }),
  ),
  allow_network_layers: Type.Optional(AllowNetworkLayers),
};

export const guestOperationRoutes: RouteModule = (app, services) => {
  const { guestOperations } = services;
  const add = <P extends TProperties>(path: string, action: GuestAction<P>) =>
    operationRoute(app, services, path, action);
  add('set-hostname', {
    summary: 'Set the host name of a guest, running or (Linux) off',
    fields: HOSTNAME,
    answer: HostnameSetSchema,
    start: (...asked) => guestOperations.setHostname(...asked),
  });
  add('add-to-ad', {
    summary: 'Join a guest to a directory domain',
    fields: JOIN,
    answer: DirectoryJoinedSchema,
    start: (...asked) => guestOperations.joinDirectory(...asked),
  });
  add('rm-from-ad', {
    summary: 'Let a guest leave its directory domain',
    fields: LEAVE,
    answer: DirectoryLeftSchema,
    start: (...asked) => guestOperations.leaveDirectory(...asked),
  });
  add('ssh-keys', {
    summary: 'Add SSH keys to a user of a Linux guest, running or off',
    fields: KEYS,
    answer: ChangedSshKeysSchema,
    start: (id, body, ...by) => guestOperations.changeSshKeys(id, { ...body, change: 'add' }, ...by),
  });
  add('ssh-keys/remove', {
    summary: 'Remove SSH keys from a user of a Linux guest, running or off',
    fields: KEYS,
    answer: ChangedSshKeysSchema,
    start: (id, body, ...by) => guestOperations.changeSshKeys(id, { ...body, change: 'remove' }, ...by),
  });
  add('sysprep', {
    summary: 'Run Sysprep in a running Windows guest',
    fields: SYSPREP,
    answer: SysprepRunSchema,
    start: (...asked) => guestOperations.sysprep(...asked),
  });
  add('prepare', {
    summary: 'Prepare the disk of a Linux guest that is off to become a template',
    fields: PREPARE,
    answer: GuestPreparedSchema,
    start: (...asked) => guestOperations.prepare(...asked),
  });
  for (const change of ['attach', 'detach'] as const)
    add(`${change}-guest-tools-iso`, {
      summary: change === 'attach' ? 'Mount the guest tools image' : 'Unmount the guest tools image',
      fields: {},
      answer: GuestToolsSchema,
      start: (id, _asked, user, taskId) => guestOperations.tools(change, id, user, taskId),
    });
};

interface GuestAction<P extends TProperties> {
  summary: string;
  fields: P;
  answer: TSchema & { $id?: string };
  start: (id: string, asked: Static<TObject<P>>, user: Principal, taskId: string) => Promise<TaskState>;
}

function operationRoute<P extends TProperties>(
  app: App,
  services: Services,
  path: string,
  { summary, fields, answer, start }: GuestAction<P>,
): void {
  app.post(
    `/api/domains/:id/${path}/`,
    {
      config: { access: 'guest.execute', ...LONG_ACTION },
      schema: {
        tags: ['guests'],
        summary,
        params: IdParams,
        querystring: AsyncQuery,
        body: body(fields),
        response: taskAnswers(ref(answer)),
      },
    },
    (request, reply) => {
      const { id } = request.params as { id: string };
      return runTask(services, request, reply, {
        start: taskId => start(id, request.body as never, principalOf(request), taskId),
      });
    },
  );
}
