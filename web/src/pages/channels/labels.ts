// Labels of the settings and secrets of channels.
import { language } from '$lib/i18n.svelte';

/** Each in English and Chinese; of other fields the name is shown. */
const LABELS: Record<string, [en: string, zh: string]> = {
  allow: ['Who may write', '谁可以写消息'],
  'groups.allow': ['Groups that are read', '读取的群组'],
  'groups.mention_only': ['In groups, answer only when mentioned', '在群组中仅在被提及时回答'],
  mention_only: ['In channels, answer only when named', '在频道中仅在被点名时回答'],
  mode: ['How messages arrive', '消息接收方式'],
  parse: ['Form of replies', '回复格式'],
  streaming: ['While an answer is written', '回答生成过程中'],
  api_base: ['Address of the API', 'API 地址'],
  url: ['Address for replies', '回复地址'],
  actions: ['Receives actions too', '也接收操作'],
  tolerance: ['Age of a signature, in seconds', '签名有效时间（秒）'],
  server: ['Server', '服务器'],
  port: ['Port', '端口'],
  tls: ['TLS', 'TLS'],
  nick: ['Nick', '昵称'],
  account: ['Name of the services account', '服务账号名称'],
  channels: ['Channels to join', '加入的频道'],
  identify_by: ['People are known by', '识别人员的方式'],
  homeserver: ['Homeserver', '主服务器'],
  user: ['User', '用户'],
  address: ['Address', '地址'],
  name: ['Name', '名称'],
  'imap.host': ['IMAP server', 'IMAP 服务器'],
  'imap.port': ['IMAP port', 'IMAP 端口'],
  'imap.security': ['IMAP protection', 'IMAP 加密'],
  'smtp.host': ['SMTP server', 'SMTP 服务器'],
  'smtp.port': ['SMTP port', 'SMTP 端口'],
  'smtp.security': ['SMTP protection', 'SMTP 加密'],
  mailbox: ['Folder that is watched', '监视的文件夹'],
  sent: ['Folder of sent mails', '已发送文件夹'],
  server_saves_sent: ['The server saves sent mails', '服务器保存已发送邮件'],
  authentication: ['Check of senders', '发件人验证'],
  authserv: ['Name of the checking server', '验证服务器名称'],
  phone_number_id: ['Id of the phone number', '电话号码 ID'],
  template: ['Template', '模板'],
  template_language: ['Language of the template', '模板语言'],
  origins: ['Sites that show the widget', '显示组件的网站'],
  title: ['Title', '标题'],
  greeting: ['Greeting', '问候语'],
  messages_per_minute: ['Messages a minute of one visitor', '每位访客每分钟消息数'],
  token: ['Token', '令牌'],
  bot_token: ['Bot token (xoxb-…)', '机器人令牌 (xoxb-…)'],
  app_token: ['App token (xapp-…)', '应用令牌 (xapp-…)'],
  signing_secret: ['Signing secret', '签名密钥'],
  webhook_secret: ['Webhook secret', 'Webhook 密钥'],
  secret: ['Secret', '密钥'],
  identity_secret: ['Secret for names of users', '用户身份密钥'],
  password: ['Password', '密码'],
  server_password: ['Password of the server', '服务器密码'],
  access_token: ['Access token', '访问令牌'],
  hs_token: ['Token of the homeserver', '主服务器令牌'],
  app_secret: ['App secret', '应用密钥'],
  verify_token: ['Verify token', '验证令牌'],
};

export function labelOf(id: string): string {
  const known = LABELS[id];
  if (known) return known[language.id === 'zh' ? 1 : 0];
  const plain = id.replaceAll('_', ' ').replaceAll('.', ': ');
  return plain.charAt(0).toUpperCase() + plain.slice(1);
}
