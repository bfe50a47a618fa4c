/** One user: their logins and tokens. */
import { Card, CardBody, CardTitle } from '@patternfly/react-core';
import { useQuery } from '@tanstack/react-query';
import { useNavigate, useParams } from 'react-router';
import { answer, api, type User } from '../api/client.ts';
import { LoginList } from '../parts/logins.tsx';
import { ViewPage } from '../parts/page.tsx';
import { Shown } from '../parts/shown.tsx';
import { TokenList } from '../parts/tokens.tsx';
import { UserMenu } from '../parts/user-menu.tsx';
import { useWords } from '../texts/index.tsx';

export default function UserPage() {
  const { texts } = useWords();
  const { id } = useParams();
  const query = useQuery({
    queryKey: ['user', id],
    queryFn: () => answer(api.GET('/api/users/{id}/', { params: { path: { id: Number(id) } } })),
  });
  return query.data === undefined ? (
    <ViewPage title={texts.users.title}>
      <Shown query={query}>{() => null}</Shown>
    </ViewPage>
  ) : (
    <One user={query.data} />
  );
}

function One({ user }: { user: User }) {
  const { texts, format } = useWords();
  const words = texts.users;
  const navigate = useNavigate();
  const about = [
    texts.roles[user.role] ?? user.role,
    user.enabled ? words.enabled : words.disabled,
    words.lastLoginAt(format.time(user.last_login)),
  ];
  return (
    <ViewPage
      title={user.username}
      about={about.join(' · ')}
      actions={<UserMenu user={user} removed={() => void navigate('/users')} />}
    >
      {user.description !== '' && <p className="vk-block">{user.description}</p>}
      <Card className="vk-block">
        <CardTitle component="h2">{texts.logins.title}</CardTitle>
        <CardBody>
          <LoginList of={user.id} />
        </CardBody>
      </Card>
      <Card className="vk-block">
        <CardTitle component="h2">{texts.tokens.title}</CardTitle>
        <CardBody>
          <TokenList of={user.id} />
        </CardBody>
      </Card>
    </ViewPage>
  );
}
