import Type from 'typebox';
import { nullable, oneOf, Permissions, record, Time, Uuid } from './common.ts';

export const NodeSchema = record('Node', {
  id: Uuid,
  verbose_name: Type.String(),
  description: Type.String(),
  status: oneOf(['ACTIVE', 'FAILED', 'SERVICE'] as const, {
    description: 'FAILED: the node or its hypervisor daemon is not reachable',
  }),
  management_ip: Type.String(),
  version: Type.String({ description: 'of the agent' }),
  cpu_count: Type.Integer(),
  memory_count: Type.Integer({ description: 'MiB' }),
  domains_count: Type.Integer(),
  domains_on_count: Type.Integer(),
  hypervisor: Type.Object(
    { libvirt: Type.String(), emulator: Type.String() },
    { additionalProperties: false, description: 'versions' },
  ),
  last_seen: nullable(Time),
  base_datapool: nullable(Uuid),
  permissions: Permissions,
});

export const NodeUsageSchema = record('NodeUsage', {
  id: Uuid,
  verbose_name: Type.String(),
  cpu_count: Type.Integer({ description: 'of the node' }),
  cpu_promised: Type.Integer({ description: 'virtual ones of the VMs that run or are suspended' }),
  cpu_percent: Type.Number({ minimum: 0, description: 'promised of those there are; may be more than 100' }),
  memory_count: Type.Integer({ description: 'MiB, of the node' }),
  memory_promised: Type.Integer({ description: 'MiB, of the VMs that run or are suspended' }),
  memory_percent: Type.Number({ minimum: 0, description: 'promised of what there is; may be more than 100' }),
  domains_count: Type.Integer(),
  domains_on_count: Type.Integer(),
});

export const EnrolmentSchema = record('Enrolment', {
  id: Uuid,
  verbose_name: Type.String(),
  token: Type.String({ description: 'shown this once; give it to `virtkeep-agent enroll` on the node' }),
  expires_on: Time,
});

export const NodeCertificateSchema = record('NodeCertificate', {
  node_id: Uuid,
  certificate_pem: Type.String(),
  ca_pem: Type.String(),
});
