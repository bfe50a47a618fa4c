/** Who is told of what, and what became of it. */
import { useState } from 'react';
import { useParams } from 'react-router';
import { ActionButton } from '../../parts/actions.tsx';
import { Empty } from '../../parts/list.tsx';
import { ViewPage } from '../../parts/page.tsx';
import { PageTabs } from '../../parts/page-tabs.tsx';
import { rightReason } from '../../parts/reasons.ts';
import { useAsked } from '../../parts/use-asked.ts';
import { useWords } from '../../texts/index.tsx';
import { Outbox } from './outbox.tsx';
import { EditTarget } from './target-form.tsx';
import { Targets } from './targets.tsx';

export default function NotificationsPage() {
  const { texts } = useWords();
  const words = texts.notifications;
  const { tab } = useParams();
  const reason = rightReason('notification.manage', useAsked());
  const [making, setMaking] = useState<'mail' | 'webhook' | undefined>();
  if (reason !== undefined)
    return (
      <ViewPage title={words.title}>
        <Empty title={reason} />
      </ViewPage>
    );
  return (
    <ViewPage
      title={words.title}
      actions={
        <span className="vk-row">
          <ActionButton
            variant="primary"
            action={{ key: 'mail', label: words.addMail, act: () => setMaking('mail') }}
          />
          <ActionButton
            action={{ key: 'webhook', label: words.addWebhook, act: () => setMaking('webhook') }}
          />
        </span>
      }
    >
      {making && <EditTarget kind={making} close={() => setMaking(undefined)} />}
      <PageTabs
        label={words.title}
        at="/notifications"
        active={tab}
        tabs={[
          { key: 'targets', title: words.targets, content: () => <Targets /> },
          { key: 'sent', title: words.sent, content: () => <Outbox /> },
        ]}
      />
    </ViewPage>
  );
}
