export type { CertificateAuthority, CertificateUse, IssuedCertificate } from './authority.ts';
export { ensureCa, issueCertificate, issueServerCertificate } from './authority.ts';
export { signNodeRequest } from './csr.ts';
export { issueServiceCertificate } from './issue-service.ts';
export { CONTROLLER_URN, isHost, nodeHost, nodeUrn } from './names.ts';
export { signRevocation } from './revocation.ts';
export { ensureControllerCertificate, ensureServerCertificate, openAuthority } from './stored.ts';
export { needsRenewal } from './x509.ts';
