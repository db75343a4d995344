import sys; sys.path.insert(0,"/tmp/h4/s")
from m import *
for fam, v in (("advection_0.1",.005),("advection_1",.05),("advection_4",.2)):
    tr, _ = load(fam); F = torch.fft.rfft(tr[:8,:,0].double())
    for k in (1,2,4):
        r = F[:,1:,k]/F[:,:-1,k]; w = F[:,:-1,k].abs()
        ph = -torch.angle(r*torch.exp(torch.tensor(2j*math.pi*k*v)))/(2*math.pi*k)
        print(fam,k,"speed",[round(float(v+(ph*w).sum(0)[a]/w.sum(0)[a]),6) for a in (0,5,20,39)],"amp", [round(float((r.abs()*w).sum(0)[a]/w.sum(0)[a]),6) for a in (0,5,20,39)])
