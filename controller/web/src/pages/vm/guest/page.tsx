/** What is inside of a VM, by its guest agent: what it tells, its commands, files, keys, names. */
import { Alert, Card, CardBody, CardTitle } from '@patternfly/react-core';
import type { ReactNode } from 'react';
import type { Domain } from '../../../api/client.ts';
import { domainReason } from '../../../parts/reasons.ts';
import { useAsked } from '../../../parts/use-asked.ts';
import { useWords } from '../../../texts/index.tsx';
import { Commands } from './commands.tsx';
import { GuestFiles } from './files.tsx';
import { Information } from './information.tsx';
import { Operations } from './operations.tsx';
import { SshKeys } from './ssh-keys.tsx';

export function VmGuest({ domain }: { domain: Domain }) {
  const { texts } = useWords();
  const words = texts.guest;
  const asked = useAsked();
  const reason = domainReason('guest_command', domain, asked);
  return (
    <>
      <Part title={words.information}>
        <Information domain={domain} />
      </Part>
      <Part title={words.operations}>
        <Operations domain={domain} />
      </Part>
      {reason !== undefined && <Alert isInline variant="info" title={reason} className="vk-block" />}
      {reason === undefined && (
        <>
          <Part title={words.commands}>
            <Commands domain={domain} />
          </Part>
          <Part title={words.files}>
            <GuestFiles domain={domain} />
          </Part>
        </>
      )}
      {domainReason('guest_operation', domain, asked) === undefined && (
        <Part title={words.sshKeys}>
          <SshKeys domain={domain} />
        </Part>
      )}
    </>
  );
}

function Part({ title, children }: { title: string; children: ReactNode }) {
  return (
    <Card className="vk-block">
      <CardTitle component="h2">{title}</CardTitle>
      <CardBody>{children}</CardBody>
    </Card>
  );
}
