import Type from 'typebox';
import { nullable, oneOf, record, Time } from './common.ts';

export const Serial = Type.String({
  minLength: 1,
  maxLength: 128,
  description: 'serial number, hex; colons and leading zeros count for nothing',
});

const whose = {
  id: Serial,
  kind: oneOf(['node', 'service', 'unknown'] as const),
  subject: Type.String({ description: 'id of the node, name of the service' }),
};

export const RevokedCertificateSchema = record('RevokedCertificate', whose);

export const CertificateSchema = record('Certificate', {
  ...whose,
  role: Type.String({ description: 'of the service' }),
  issued: Time,
  expires_on: Time,
  revoked_on: nullable(Time),
  reason: nullable(Type.String({ description: 'removed or compromised' })),
});
