import Type from 'typebox';
import { STORY } from '../document/story.ts';
import {
  described,
  integer,
  nullable,
  oneOf,
  Permissions,
  part,
  record,
  Time,
  text,
  Uuid,
} from './common.ts';

const EXAMPLE_PEM = '-----BEGIN CERTIFICATE-----\n…\n-----END CERTIFICATE-----\n';

export const NodeSchema = record(
  'Node',
  {
    description: 'A hypervisor node',
    example: {
      id: STORY.node,
      verbose_name: 'n1',
      description: '',
      status: 'ACTIVE',
      management_ip: '192.0.2.21',
      version: '0.1.0',
      cpu_count: 16,
      memory_count: 65_536,
      domains_count: 12,
      domains_on_count: 9,
      hypervisor: { libvirt: '9.0.0', emulator: '7.2.0' },
      last_seen: STORY.changed,
      base_datapool: STORY.pool,
      permissions: ['update', 'remove'],
    },
  },
  {
    id: described(Uuid, 'id of the node'),
    verbose_name: text('its host name, or the name it was given'),
    description: text('what people said of it'),
    status: oneOf(['ACTIVE', 'FAILED', 'SERVICE'] as const, {
      description: 'FAILED: the node or its hypervisor daemon is not reachable',
    }),
    management_ip: text('where its agent is reached'),
    version: text('of the agent'),
    cpu_count: integer('threads of its processors'),
    memory_count: integer('MiB'),
    domains_count: integer('number of its VMs'),
    domains_on_count: integer('how many of them run'),
    hypervisor: part({ libvirt: text('version of libvirt'), emulator: text('version of QEMU') }, 'versions'),
    last_seen: nullable(described(Time, 'when it answered last; null: never')),
    base_datapool: nullable(described(Uuid, 'where backups go that name no data pool')),
    permissions: Permissions,
  },
);

export const NodeUsageSchema = record(
  'NodeUsage',
  {
    description: 'What of a node its VMs were promised',
    example: {
      id: STORY.node,
      verbose_name: 'n1',
      cpu_count: 16,
      cpu_promised: 18,
      cpu_percent: 112.5,
      memory_count: 65_536,
      memory_promised: 32_768,
      memory_percent: 50,
      domains_count: 12,
      domains_on_count: 9,
    },
  },
  {
    id: described(Uuid, 'id of the node'),
    verbose_name: text('its name'),
    cpu_count: integer('of the node'),
    cpu_promised: integer('virtual ones of the VMs that run or are suspended'),
    cpu_percent: Type.Number({
      minimum: 0,
      description: 'promised of those there are; may be more than 100',
    }),
    memory_count: integer('MiB, of the node'),
    memory_promised: integer('MiB, of the VMs that run or are suspended'),
    memory_percent: Type.Number({
      minimum: 0,
      description: 'promised of what there is; may be more than 100',
    }),
    domains_count: integer('number of its VMs'),
    domains_on_count: integer('how many of them run'),
  },
);

export const EnrolmentSchema = record(
  'Enrolment',
  {
    description: 'A token by which one node enrols once',
    example: { id: STORY.node, verbose_name: 'n2', token: 'Zk3…', expires_on: STORY.changed },
  },
  {
    id: described(Uuid, 'id of the enrolment'),
    verbose_name: text('name of the node to be'),
    token: text('shown this once; give it to `virtkeep-agent enroll` on the node'),
    expires_on: described(Time, 'until then it can be used'),
  },
);

export const NodeCertificateSchema = record(
  'NodeCertificate',
  {
    description: 'What an enrolled node shows and trusts from now on',
    example: { node_id: STORY.node, certificate_pem: EXAMPLE_PEM, ca_pem: EXAMPLE_PEM },
  },
  {
    node_id: described(Uuid, 'id of the node'),
    certificate_pem: text('its certificate'),
    ca_pem: text('certificate of the authority that issued it'),
  },
);
