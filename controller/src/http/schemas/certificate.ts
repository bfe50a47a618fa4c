import Type from 'typebox';
import { STORY } from '../document/story.ts';
import { described, nullable, oneOf, record, Time, text } from './common.ts';

export const Serial = Type.String({
  minLength: 1,
  maxLength: 128,
  description: 'serial number, hex; colons and leading zeros count for nothing',
});

const whose = {
  id: Serial,
  kind: oneOf(['node', 'service', 'unknown'] as const, { description: 'what it was issued to' }),
  subject: text('id of the node, name of the service'),
};

const node = { id: '5f3ed66a8870ba2e', kind: 'node', subject: STORY.node } as const;

export const RevokedCertificateSchema = record(
  'RevokedCertificate',
  { description: 'A certificate that counts no more', example: node },
  whose,
);

export const CertificateSchema = record(
  'Certificate',
  {
    description: 'A certificate that was issued here',
    example: {
      ...node,
      role: '',
      issued: STORY.created,
      expires_on: STORY.until,
      revoked_on: null,
      reason: null,
    },
  },
  {
    ...whose,
    role: text('of the service; empty for a node'),
    issued: described(Time, 'when it was issued'),
    expires_on: described(Time, 'when its life ends'),
    revoked_on: nullable(described(Time, 'when it was revoked; null: it counts')),
    reason: nullable(text('removed or compromised; null: it counts')),
  },
);
